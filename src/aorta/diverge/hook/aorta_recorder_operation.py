"""One call of torch's dispatcher: what it reads and writes, who wrote that memory, how it runs."""

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aorta.diverge.hook.aorta_recorder import Place, RecorderSettings, Written
else:  # the directory of this file is on the path, and Aorta may not be installed
    from aorta_recorder import Place, RecorderSettings, Written

torch: Any = sys.modules.get("torch")  # whole before this is loaded
_MOST_WRITERS = 8
_MOST_HELD = 20_000  # pieces of memory, before those that are gone are forgotten
_WRITES_ONLY = re.compile(
    r"(_foreach_)?(copy|fill|zero|normal|uniform|bernoulli|random|exponential|log_normal|cauchy|"
    r"geometric)_"
)
_POINT_TO_POINT = frozenset(("send", "recv_", "recv_any_source_", "barrier", "monitored_barrier_"))
_CREATES_FLOATS = frozenset(
    ["empty", "empty_strided", "zeros", "ones", "eye", "linspace", "logspace"]
)
_PRODUCTS = ("mm", "mv", "dot", "attention")
# The lower bits of a writer's number say which record it is; from here on, which of its results.
_NEXT_RESULT = 1 << 40
_FRESH = "aten::lift_fresh"  # numbers of Python's that become a tensor
# That their schemas do not own up to; the last gives the memory that it was given, filled in part.
_OTHER_VIEWS = ("aten::_unsafe_view", "aten::set_", "fsdp::all_gather_copy_in")
_EMPTY = re.compile(r"aten::(empty(_like|_strided|_permuted)?|new_empty(_strided)?)")


class Memory:
    """Who wrote each storage last; a view shares its storage.

    Each is held by a weak reference, so that its address is not reused while it is known here.
    """

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self._most = _MOST_HELD
        # By storage: the last that wrote all of it, or those that wrote parts since.
        self.writers: dict[int, Written] = {}
        # Nothing recorded wrote it: what it is, and where it was requested or came from outside.
        self._unwritten: dict[int, tuple[str, Place]] = {}

    def _forget_what_is_gone(self) -> None:
        storages = torch.UntypedStorage
        for key in [key for key, held in self._held.items() if storages._expired(held)]:
            storages._free_weak_ref(self._held.pop(key))
            self.writers.pop(key, None)
            self._unwritten.pop(key, None)
        self._most = max(_MOST_HELD, 2 * len(self._held))

    def unwritten(self, tensor: Any, what: str, place: Place) -> None:
        if self.written([tensor], 0):
            key = tensor.untyped_storage()._cdata
            del self.writers[key]
            self._unwritten[key] = (what, place)

    def written(self, tensors: Sequence[Any], index: int) -> bool:
        """By record `index`. False where a tensor has no one storage, such as a sparse one."""
        writers, unwritten, held = self.writers, self._unwritten, self._held
        known = True
        for tensor in tensors:
            try:
                storage = tensor.untyped_storage()
            except (NotImplementedError, RuntimeError):
                known = False
            else:
                key = storage._cdata
                before = writers.get(key)
                if before is None:
                    unwritten.pop(key, None)
                    if key not in held:
                        if len(held) >= self._most:
                            self._forget_what_is_gone()
                        held[key] = storage._weak_ref()
                    writers[key] = index
                elif tensor.nbytes >= storage.nbytes():
                    writers[key] = index
                else:
                    parts = before if isinstance(before, list) else [before]
                    writers[key] = [*parts, index][-_MOST_WRITERS:]
            index += _NEXT_RESULT
        return known

    def copied_bytes(self, target: Any, source: Any) -> bool:
        """Whether all of a memory is copied as bytes, as `copy.deepcopy` does: what is known of it
        is known of the copy.
        """
        if not (target.dtype is source.dtype is torch.uint8 and target.nbytes == source.nbytes):
            return False
        known, copy = source.untyped_storage(), target.untyped_storage()
        if not known.nbytes() == copy.nbytes() == source.nbytes or not self.written([target], 0):
            return False
        facts: Any
        for facts in (self.writers, self._unwritten):
            facts.pop(copy._cdata, None)
            if known._cdata in facts:
                facts[copy._cdata] = facts[known._cdata]
        return True

    def knows(self, tensor: Any) -> bool:
        """Whether something that is recorded wrote it."""
        storage = _storage(tensor)
        return storage is not None and storage._cdata in self.writers

    def came_from(self, tensor: Any) -> tuple[str, Place] | None:
        """What it is that nothing recorded has written yet, and where it came about."""
        storage = _storage(tensor)
        return None if storage is None else self._unwritten.pop(storage._cdata, None)


def _storage(tensor: Any) -> Any:
    """None for what has no one storage, such as a sparse tensor."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def is_view(schema: Any) -> bool:
    """Whether what it gives is memory that it was given."""
    aliases = [r.alias_info for r in schema.returns]
    shares = bool(aliases) and all(alias and not alias.is_write for alias in aliases)
    return schema.name in _OTHER_VIEWS or (shares and schema.name != _FRESH)


def computes(schema: Any) -> bool:
    """A view, or a number for Python, is no result."""
    writes = any(a.alias_info and a.alias_info.is_write for a in schema.arguments)
    gives = writes or any("Tensor" in str(r.type) for r in schema.returns)
    return gives and not is_view(schema)


class OperationSignature:
    """What the schema of an operation says, read once: torch makes it anew for each reader."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self._tensor, self._parameter = torch.Tensor, torch.nn.Parameter
        self._types = frozenset((torch.Tensor, torch.nn.Parameter))
        # What its own `__call__` calls, for the same arguments.
        call = func._op if type(func) is torch._ops.OpOverload else func
        self.name: str = schema.name
        self.short = schema.name.rpartition("::")[2]
        self.written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        self.arguments = [a.name for a in schema.arguments]
        overwrites = _WRITES_ONLY.fullmatch(self.short) or self.short.endswith("_out")
        self.overwrites = bool(overwrites)
        names = [a.name for a in schema.arguments if "Tensor" in str(a.type)]
        self.is_in_place = bool(self.written) and not overwrites and self.written == names[:1]
        self._over = frozenset(self.written) if overwrites else frozenset()
        if self.name.startswith("c10d::"):  # their schemas do not say so
            self._over |= {name for name in self.arguments if name.startswith("output")}
        self._reads = [
            place
            for place, argument in enumerate(schema.arguments)
            if "Tensor" in str(argument.type) and argument.name not in self._over
        ]
        # Running statistics, which a schema does not own up to.
        self._statistics = [
            place
            for place, argument in enumerate(schema.arguments)
            if argument.name.startswith("running_") and self.short.endswith("batch_norm")
        ]
        self.is_copy = self.name == "aten::copy_"
        self.is_fresh = self.name == _FRESH
        self.computes = computes(schema)
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags
        is_collective = self.name.startswith("c10d::") and self.short not in _POINT_TO_POINT
        self.call = _waited_for(call) if is_collective else call
        self.is_empty = _EMPTY.fullmatch(self.name) is not None
        of_cudnn = re.search("conv|rnn", self.short)
        self.of_cudnn = of_cudnn[0] if of_cudnn else None
        self.is_product = bool(of_cudnn) or any(p in self.short for p in _PRODUCTS)

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
                elif self._is_plain_list(value):
                    found += value
                elif value is not None:
                    self._add_tensors(found, (value,))
        if kwargs:
            over = self._over
            self._add_tensors(found, [v for n, v in kwargs.items() if n not in over and n != "out"])
        return found

    def outputs(self, out: Any, args: Any, kwargs: Any) -> list[Any]:
        if type(out) is self._tensor:
            return [out]
        if self.is_in_place and args and self._is_plain_list(args[0]):
            return args[0]  # type: ignore[no-any-return]
        found = self.tensors((out,)) or self.overwritten(args, kwargs)
        if self._statistics:
            found += self.tensors(args[place] for place in self._statistics if place < len(args))
        return found

    def _is_plain_list(self, value: Any) -> bool:
        return type(value) is list and self._types.issuperset(map(type, value))

    def overwritten(self, args: Any, kwargs: Any) -> list[Any]:
        """The tensors that it writes in place."""
        named = {**dict(zip(self.arguments, args, strict=False)), **kwargs}
        return self.tensors([named.get(name) for name in self.written])

    def tensors(self, values: Any) -> list[Any]:
        found: list[Any] = []
        self._add_tensors(found, values)
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
                found.append(_local_of(value))


def _local_of(tensor: Any) -> Any:
    """Of a DTensor: what this rank holds. Of a nested tensor: all of its numbers."""
    name = type(tensor).__name__
    if name == "AsyncCollectiveTensor":
        tensor = tensor.wait()
    return getattr(tensor, "_values" if name == "NestedTensor" else "_local_tensor", tensor)


_PLAIN = frozenset((int, float, bool, str, type(None)))


def _waited_for(call: Callable[..., Any]) -> Callable[..., Any]:
    """The result of a collective is there only then."""

    def called(*args: Any, **kwargs: Any) -> Any:
        out = call(*args, **kwargs)
        for work in out if isinstance(out, (list, tuple)) else (out,):
            if type(work).__name__ == "ScriptObject":
                torch._C._distributed_c10d.Work.unbox(work).wait()
        return out

    return called


_requested: dict[int, Any] = {}  # storage -> the precision that the program requested


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """With every element of lists, tuples and dictionaries changed."""
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return change(value)


class OtherSide:
    """A call on another device or in another precision than the program's, with the same draws."""

    def __init__(
        self, signature: OperationSignature, settings: RecorderSettings, kwargs: Any
    ) -> None:
        self._signature, self._device = signature, settings.device
        self._requested = kwargs.get("dtype")
        self._wanted = getattr(torch, settings.dtype) if settings.dtype is not None else None
        self._lower = [torch.float16, torch.bfloat16]
        if self._wanted is torch.float64:
            self._lower.append(torch.float32)

    def arguments(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """As this side wants them."""
        device = self._device
        if device is not None:
            if isinstance(kwargs.get("device"), torch.device):
                kwargs = {**kwargs, "device": torch.device(device)}
            tensors = self._signature.tensors(args)
            if any(tensor.device.type not in (device, "meta") for tensor in tensors):
                args, kwargs = self._moved(args, device), self._moved(kwargs, device)
        if self._wanted is None:
            return args, kwargs
        fixed = {*self._signature.written}  # what is written in place keeps its memory
        names = self._signature.arguments
        args = tuple(
            value if name in fixed else mapped(value, self._raised)
            for name, value in zip(names, args, strict=False)
        )
        kwargs = {k: v if k in fixed else mapped(v, self._raised) for k, v in kwargs.items()}
        if self._signature.short in _CREATES_FLOATS and kwargs.get("dtype") is None:
            kwargs["dtype"] = self._raised(torch.get_default_dtype())
        return args, kwargs

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Random numbers are drawn on the CPU in the program's precision, alike on both sides."""
        call = self._signature.call
        # Fused attention, where the program insists on it, is nothing for a CPU.
        if not self._signature.is_random or "dot_product" in self._signature.short:
            return call(*args, **kwargs)
        tensors = self._signature.tensors([*args, *kwargs.values()])
        where = kwargs.get("device") or (tensors[0].device if tensors else torch.device("cpu"))
        args, kwargs = self._moved(args, "cpu"), self._moved(kwargs, "cpu")
        if self._signature.written:
            target = tensors[0]
            requested = _requested.get(target.untyped_storage()._cdata, target.dtype)
            drawn = torch.empty(target.shape, dtype=requested, device="cpu")
            target.copy_(call(drawn, *args[1:], **kwargs))
            return target
        kwargs.pop("dtype", None)
        if self._requested is not None:
            kwargs["dtype"] = self._requested
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        out = self._moved(call(*args, **kwargs), where)
        return out if self._wanted is None else mapped(out, self._raised)

    def _moved(self, value: Any, device: Any) -> Any:
        return mapped(value, lambda one: one.to(device) if isinstance(one, torch.Tensor) else one)

    def _raised(self, value: Any) -> Any:
        """A floating type below the wanted one becomes it: of a tensor, or as an argument."""
        if isinstance(value, torch.Tensor):
            return value.to(self._wanted) if value.dtype in self._lower else value
        is_lower = isinstance(value, torch.dtype) and value in self._lower
        return self._wanted if is_lower else value

    def remember(self, outputs: list[Any]) -> None:
        """In which precision memory was requested, where it got another."""
        if self._wanted is None or "dtype" not in self._signature.arguments:
            return
        requested = self._requested or torch.get_default_dtype()
        for tensor in outputs:
            if tensor.dtype != requested and tensor.is_floating_point():
                _requested[tensor.untyped_storage()._cdata] = requested
