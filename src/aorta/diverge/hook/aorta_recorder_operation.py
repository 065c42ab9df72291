"""One call of torch's dispatcher: what it reads and writes, who wrote that memory last, how it runs
on this side.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aorta.diverge.hook.aorta_recorder import Place
else:  # the directory of this file is on the path, and Aorta may not be installed
    from aorta_recorder import Place

_MOST_WRITERS = 8
_MOST_HELD = 20_000  # pieces of memory, before those that are gone are forgotten
_WRITES_ONLY = re.compile(
    r"(copy|fill|zero|normal|uniform|bernoulli|random|exponential|log_normal|cauchy|geometric)_"
)
_POINT_TO_POINT = frozenset(("send", "recv_", "recv_any_source_", "barrier", "monitored_barrier_"))
_CREATES_FLOATS = frozenset(
    ["empty", "empty_strided", "zeros", "ones", "eye", "linspace", "logspace"]
)
_PRODUCTS = ("mm", "mv", "dot", "attention")
_LOW = ("float16", "bfloat16")
# The bits of a writer's number that say which record it is; above them, which of its results.
RECORD_BITS = 40
_EMPTY = re.compile(r"aten::(empty(_like|_strided|_permuted)?|new_empty(_strided)?)")


class Memory:
    """Who wrote each piece of memory last. A view shares its memory, so nothing needs to be known
    of views.

    Each piece is held by a weak reference: its address is not given to another one while something
    is known of it.
    """

    def __init__(self, torch: Any) -> None:
        self._torch, self._tensor = torch, torch.Tensor
        self._held: dict[int, int] = {}
        self._most = _MOST_HELD
        self._writers: dict[int, list[int]] = {}
        self._unwritten: dict[int, Place] = {}

    def _key(self, tensor: Any) -> int:
        """Zero for what has no one storage, such as a sparse tensor."""
        if type(tensor) is not self._tensor:
            tensor = getattr(tensor, "_local_tensor", tensor)
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return 0
        key: int = storage._cdata
        if key not in self._held:
            if len(self._held) >= self._most:
                self._forget_what_is_gone()
            self._held[key] = storage._weak_ref()
        return key

    def _forget_what_is_gone(self) -> None:
        storages = self._torch.UntypedStorage
        for key in [key for key, held in self._held.items() if storages._expired(held)]:
            storages._free_weak_ref(self._held.pop(key))
            self._writers.pop(key, None)
            self._unwritten.pop(key, None)
        self._most = max(_MOST_HELD, 2 * len(self._held))

    def unwritten(self, tensor: Any, place: Place) -> None:
        key = self._key(tensor)
        if key:
            self._writers.pop(key, None)
            self._unwritten[key] = place

    def written(self, tensor: Any, index: int) -> None:
        key = self._key(tensor)
        if not key:
            return
        if self._unwritten:
            self._unwritten.pop(key, None)
        before = self._writers.get(key)
        if before is not None:
            bare = getattr(tensor, "_local_tensor", tensor)
            whole = bare.numel() * bare.element_size() >= bare.untyped_storage().nbytes()
            self._writers[key] = [index] if whole else [*before, index][-_MOST_WRITERS:]
        else:
            self._writers[key] = [index]

    def knows(self, tensors: list[Any]) -> bool:
        """Whether something recorded wrote all of them."""
        key_of, writers = self._key, self._writers
        for tensor in tensors:  # noqa: SIM110 - a generator takes twice as long
            if key_of(tensor) not in writers:
                return False
        return True

    def asked_for_at(self, tensor: Any) -> Place | None:
        """Where memory was asked for that nothing has written yet."""
        return self._unwritten.pop(self._key(tensor), None)

    def writers(self, tensors: list[Any]) -> list[list[int] | None]:
        """Of each: the last one that wrote all of it, and those that wrote parts since; None where
        nothing recorded did.
        """
        key_of, writers_of = self._key, self._writers.get
        return [writers_of(key_of(tensor)) for tensor in tensors]


class OperationSignature:
    """What the schema of an operation says, read once: torch makes it anew each time it is
    asked.
    """

    def __init__(self, torch: Any, func: Any) -> None:
        schema = func._schema
        self._tensor, self._parameter = torch.Tensor, torch.nn.Parameter
        self.overload = str(func)
        self.name: str = schema.name
        self.short = schema.name.rpartition("::")[2]
        self.written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        self.arguments = [a.name for a in schema.arguments]
        overwrites = _WRITES_ONLY.fullmatch(self.short) or self.short.endswith("_out")
        self._over = frozenset(self.written) if overwrites else frozenset()
        self._reads = [
            place
            for place, argument in enumerate(schema.arguments)
            if "Tensor" in str(argument.type) and argument.name not in self._over
        ]
        shares = self.short == "_unsafe_view"  # a view that its schema does not own up to
        aliases = [r.alias_info for r in schema.returns]
        is_view = shares or (
            bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)
        )
        gives = self.written or any("Tensor" in str(r.type) for r in schema.returns)
        self.computes = bool(gives) and not is_view  # a view, or a number for Python, is no result
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags
        self.is_collective = self.name.startswith("c10d::") and self.short not in _POINT_TO_POINT
        self.is_empty = _EMPTY.fullmatch(self.name) is not None
        self.is_convolution = "conv" in self.short
        self.is_product = self.is_convolution or any(p in self.short for p in _PRODUCTS)

    def inputs(self, args: Any, kwargs: Any) -> list[Any]:
        """The tensors that are read. One that is only written over is none of them."""
        found: list[Any] = []
        tensor, parameter, given = self._tensor, self._parameter, len(args)
        for place in self._reads:
            if place < given:
                value = args[place]
                kind = type(value)
                if kind is tensor or kind is parameter:
                    found.append(value)
                elif value is not None:
                    self._add_tensors(found, (value,))
        if kwargs:
            over = self._over
            self._add_tensors(found, [v for n, v in kwargs.items() if n not in over and n != "out"])
        return found

    def outputs(self, out: Any, args: Any, kwargs: Any) -> list[Any]:
        if type(out) is self._tensor:
            return [out]
        found: list[Any] = []
        self._add_tensors(found, (out,))
        if not found and self.written:
            named = {**dict(zip(self.arguments, args, strict=False)), **kwargs}
            self._add_tensors(found, [named.get(name) for name in self.written])
        return found

    def _add_tensors(self, found: list[Any], values: Any) -> None:
        tensor, parameter = self._tensor, self._parameter
        for value in values:
            kind = type(value)
            if kind is tensor or kind is parameter:
                found.append(value)
            elif kind in _PLAIN:
                continue
            elif isinstance(value, (list, tuple)):
                self._add_tensors(found, value)
            elif isinstance(value, tensor):
                found.append(value)


_PLAIN = frozenset((int, float, bool, str, type(None)))
_signatures: dict[Any, OperationSignature] = {}


def signature_of(torch: Any, func: Any) -> OperationSignature:
    known = _signatures.get(func)
    if known is None:
        known = _signatures[func] = OperationSignature(torch, func)
    return known


def wait_for(torch: Any, out: Any) -> None:
    """The result of a collective is there only then."""
    for work in out if isinstance(out, (list, tuple)) else (out,):
        if type(work).__name__ == "ScriptObject":
            torch._C._distributed_c10d.Work.unbox(work).wait()


_born: dict[int, Any] = {}  # storage -> the precision the program asked for


class OtherSide:
    """A call whose side runs it otherwise than the program says: on another device, in another
    precision, drawn alike.
    """

    def __init__(self, torch: Any, func: Any, args: Any, kwargs: Any) -> None:
        self._torch, self.func = torch, func
        self._signature = signature_of(torch, func)
        self._written, self._arguments = self._signature.written, self._signature.arguments
        self._given = (args, kwargs)
        self._asked: Any = None
        self._wanted: Any = None

    def _tensors(self, value: Any) -> Iterator[Any]:
        if isinstance(value, self._torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from self._tensors(item)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        if self._signature.is_random:
            return self._drawn_alike(args, kwargs)
        return self.func(*args, **kwargs)

    def _drawn_alike(self, args: Any, kwargs: Any) -> Any:
        """Drawn on the CPU and in the precision that was asked for, so that both sides draw the
        same numbers.
        """
        torch = self._torch
        tensors = list(self._tensors([*args, *kwargs.values()]))
        where = kwargs.get("device") or (tensors[0].device if tensors else torch.device("cpu"))
        if self._written:
            target = tensors[0]
            born = _born.get(target.untyped_storage()._cdata, target.dtype)
            drawn = torch.empty(target.shape, dtype=born, device="cpu")
            drawn = self.func(drawn, *self._moved(args[1:], "cpu"), **self._moved(kwargs, "cpu"))
            target.copy_(drawn)
            return target
        kwargs = self._moved({k: v for k, v in kwargs.items() if k != "dtype"}, "cpu")
        if self._asked is not None:
            kwargs["dtype"] = self._asked
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        out = self._moved(self.func(*self._moved(args, "cpu"), **kwargs), where)
        return out if self._wanted is None else self._raised(out, self._wanted)

    def _moved(self, value: Any, device: Any) -> Any:
        if isinstance(value, self._torch.Tensor):
            return value.to(device)
        if isinstance(value, (list, tuple)):
            return type(value)(self._moved(item, device) for item in value)
        if isinstance(value, dict):
            return {key: self._moved(item, device) for key, item in value.items()}
        return value

    def on_its_side(self, orders: Any) -> tuple[Any, Any]:
        """The arguments as this side wants them: another precision, another device."""
        args, kwargs = self._given
        self._asked = kwargs.get("dtype")
        self._wanted = getattr(self._torch, orders.dtype) if orders.dtype is not None else None
        if orders.device is not None:
            args, kwargs = self._on_device(args, kwargs, orders.device)
        if orders.dtype is not None:
            args, kwargs = self._in_precision(args, kwargs, self._wanted)
        self._given = (args, kwargs)
        return args, kwargs

    def _on_device(self, args: Any, kwargs: Any, device: str) -> tuple[Any, Any]:
        torch = self._torch
        if isinstance(kwargs.get("device"), torch.device):
            kwargs = {**kwargs, "device": torch.device(device)}
        if any(t.device.type not in (device, "meta") for t in self._tensors([*args])):
            args, kwargs = self._moved(args, device), self._moved(kwargs, device)
        return args, kwargs

    def _in_precision(self, args: Any, kwargs: Any, wanted: Any) -> tuple[Any, Any]:
        fixed = {*self._written}  # what is written in place keeps its memory
        args = tuple(
            value if name in fixed else self._raised(value, wanted)
            for name, value in zip(self._arguments, args, strict=False)
        )
        kwargs = {k: v if k in fixed else self._raised(v, wanted) for k, v in kwargs.items()}
        torch = self._torch
        if self._signature.short in _CREATES_FLOATS and kwargs.get("dtype") is None:
            default = torch.get_default_dtype()
            kwargs = {**kwargs, "dtype": self._raised(default, wanted)}
        return args, kwargs

    def _raised(self, value: Any, wanted: Any) -> Any:
        """Every floating type below the wanted one, in tensors and in what a call asks for, becomes
        it.
        """
        torch = self._torch
        lower = [getattr(torch, name) for name in _LOW]
        if wanted is torch.float64:
            lower.append(torch.float32)
        if isinstance(value, torch.Tensor):
            return value.to(wanted) if value.dtype in lower else value
        if isinstance(value, torch.dtype):
            return wanted if value in lower else value
        if isinstance(value, (list, tuple)):
            return type(value)(self._raised(item, wanted) for item in value)
        return value

    def remember_birth(self, outputs: list[Any], orders: Any) -> None:
        """In which precision memory was asked for, where it got another."""
        if orders.dtype is None or "dtype" not in self._arguments:
            return
        asked = self._asked or self._torch.get_default_dtype()
        for tensor in outputs:
            if tensor.dtype != asked and tensor.is_floating_point():
                _born[tensor.untyped_storage()._cdata] = asked
