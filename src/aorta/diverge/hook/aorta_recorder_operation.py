"""One call of torch's dispatcher: what it reads and writes, who wrote that memory last, how it runs on this side."""

from collections.abc import Callable, Iterator
from typing import Any

_MOST_WRITERS = 8
_MOST_HELD = 20_000  # pieces of memory, before those that are gone are forgotten
_WRITES_ONLY = frozenset(
    [
        "copy_",
        "fill_",
        "zero_",
        "normal_",
        "uniform_",
        "bernoulli_",
        "random_",
        "exponential_",
        "log_normal_",
        "cauchy_",
        "geometric_",
    ]
)
_POINT_TO_POINT = frozenset(("send", "recv_", "recv_any_source_", "barrier", "monitored_barrier_"))
_CREATES_FLOATS = frozenset(
    ["empty", "empty_strided", "zeros", "ones", "eye", "linspace", "logspace"]
)
_LOW = ("float16", "bfloat16")
Place = tuple[str, str, str, int]  # phase, module, file, line


class Memory:
    """Who wrote each piece of memory last. A view shares its memory, so nothing needs to be known of views.

    Each piece is held by a weak reference: its address is not given to another one while something is known of it.
    """

    def __init__(self, weak_reference: Callable[[Any], Any]) -> None:
        self._weak_reference = weak_reference
        self._held: dict[int, Any] = {}
        self._most = _MOST_HELD
        self._writers: dict[int, list[int]] = {}
        self._unwritten: dict[int, Place] = {}

    def _key(self, tensor: Any) -> int | None:
        try:
            storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None  # sparse and others have no one storage
        key = int(storage._cdata)
        if key not in self._held:
            if len(self._held) >= self._most:
                self._forget_what_is_gone()
            self._held[key] = self._weak_reference(storage)
        return key

    def _forget_what_is_gone(self) -> None:
        for key in [key for key, held in self._held.items() if held.expired()]:
            for known in (self._held, self._writers, self._unwritten):
                known.pop(key, None)
        self._most = max(_MOST_HELD, 2 * len(self._held))

    def unwritten(self, tensor: Any, place: Place) -> None:
        key = self._key(tensor)
        if key is not None:
            self._writers.pop(key, None)
            self._unwritten[key] = place

    def written(self, tensor: Any, index: int) -> None:
        key = self._key(tensor)
        if key is None:
            return
        self._unwritten.pop(key, None)
        bare = getattr(tensor, "_local_tensor", tensor)
        whole = bare.numel() * bare.element_size() >= bare.untyped_storage().nbytes()
        before = [] if whole else self._writers.get(key, [])
        self._writers[key] = [*before, index][-_MOST_WRITERS:]

    def writers(self, tensor: Any) -> list[int]:
        """The last one that wrote all of it, and those that wrote parts since."""
        return self._writers.get(self._key(tensor) or 0, [])

    def note_unwritten(
        self, tensors: list[Any], place: Place, emit: Callable[[dict[str, Any], Any], int]
    ) -> None:
        """What nothing recorded wrote: data from outside, or memory that was never written at all."""
        for tensor in tensors:
            key = self._key(tensor)
            if key is None or key in self._writers or tensor.numel() == 0:
                continue
            empty = self._unwritten.pop(key, None)
            phase, module, file, line = empty or place
            op = "aten::empty" if empty else "input"
            record = {"op": op, "p": phase, "m": module, "f": file, "l": line, "in": [], "ish": []}
            self._writers[key] = [emit(record, tensor)]


_born: dict[int, Any] = {}  # storage -> the precision the program asked for


class _Signature:
    """What the schema of an operation says, read once: torch makes it anew each time it is asked."""

    def __init__(self, torch: Any, func: Any) -> None:
        schema = func._schema
        self.name: str = schema.name
        self.short = schema.name.rpartition("::")[2]
        self.written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        self.arguments = [a.name for a in schema.arguments]
        shares = self.short == "_unsafe_view"  # a view that its schema does not own up to
        aliases = [r.alias_info for r in schema.returns]
        self.is_view = shares or (
            bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)
        )
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags


_signatures: dict[Any, _Signature] = {}


class DispatcherCall:
    """One call of the dispatcher: what it reads and writes, and how it runs on this side."""

    def __init__(self, torch: Any, func: Any, args: Any, kwargs: Any) -> None:
        self._torch, self.func = torch, func
        known = _signatures.get(func)
        if known is None:
            known = _signatures[func] = _Signature(torch, func)
        self.name, self.short = known.name, known.short
        self._written, self._arguments = known.written, known.arguments
        self.is_view, self.is_random = known.is_view, known.is_random
        self._given = (args, kwargs)
        self._asked: Any = None

    def inputs(self, args: Any, kwargs: Any) -> list[Any]:
        """The tensors that are read. One that is only written over is none of them."""
        over = self._written if self.short in _WRITES_ONLY or self.short.endswith("_out") else []
        read = [v for n, v in zip(self._arguments, args, strict=False) if n not in over]
        read += [v for n, v in kwargs.items() if n not in over and n != "out"]
        return list(self._tensors(read))

    def outputs(self, out: Any) -> list[Any]:
        found = list(self._tensors(out))
        if not found and self._written:
            args, kwargs = self._given
            named = {**dict(zip(self._arguments, args, strict=False)), **kwargs}
            found = list(self._tensors([named.get(name) for name in self._written]))
        return found

    def _tensors(self, value: Any) -> Iterator[Any]:
        if isinstance(value, self._torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from self._tensors(item)

    def is_capturing(self) -> bool:
        """Inside a CUDA graph nothing has a value yet."""
        cuda = self._torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def run(self, args: Any, kwargs: Any, orders: Any) -> Any:
        if self.is_random and (orders.device or orders.dtype or orders.same_random):
            return self._drawn_alike(args, kwargs, orders)
        out = self.func(*args, **kwargs)
        if self.name.startswith("c10d::") and self.short not in _POINT_TO_POINT:
            self._wait(out)  # its result is there only then
        return out

    def _wait(self, out: Any) -> None:
        for work in out if isinstance(out, (list, tuple)) else (out,):
            if type(work).__name__ == "ScriptObject":
                self._torch._C._distributed_c10d.Work.unbox(work).wait()

    def _drawn_alike(self, args: Any, kwargs: Any, orders: Any) -> Any:
        """Drawn on the CPU and in the precision that was asked for, so that both sides draw the same numbers."""
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
        return out if orders.dtype is None else self._raised(out, getattr(torch, orders.dtype))

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
        if orders.device is not None:
            args, kwargs = self._on_device(args, kwargs, orders.device)
        if orders.dtype is not None:
            args, kwargs = self._in_precision(args, kwargs, getattr(self._torch, orders.dtype))
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
        if self.short in _CREATES_FLOATS and kwargs.get("dtype") is None:
            default = torch.get_default_dtype()
            kwargs = {**kwargs, "dtype": self._raised(default, wanted)}
        return args, kwargs

    def _raised(self, value: Any, wanted: Any) -> Any:
        """Every floating type below the wanted one, in tensors and in what a call asks for, becomes it."""
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
