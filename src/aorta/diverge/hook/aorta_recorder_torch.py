"""Records what torch does, from the moment it is imported: a mode of its dispatcher, hooks of modules and optimizers.

A digest is four statistics and sixteen samples, computed on the device and fetched many at a time, so that a GPU does not
wait for each of them. What an operation read is told by who wrote that memory last, so inputs cost nothing.
"""

import gc
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aorta.diverge.hook.aorta_recorder import (
        SAMPLES,
        SMALL,
        Held,
        Recorder,
        current,
        rank,
        users_line,
    )
    from aorta.diverge.hook.aorta_recorder_operation import DispatcherCall, Memory, Place
else:  # the directory of this file is on the path, and Aorta may not be installed
    from aorta_recorder import SAMPLES, SMALL, Held, Recorder, current, rank, users_line
    from aorta_recorder_operation import DispatcherCall, Memory, Place

_MOST_KEPT_BYTES = 64 * 2**20
_EMPTY = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty")


def start(torch: Any) -> None:
    """Called once torch is whole."""
    recorder = current()
    if recorder is None:
        return
    torch.manual_seed(recorder.orders.seed)
    _mode(torch, _Places(torch)).__enter__()
    _say_when_compiled(torch)


def _say_when_compiled(torch: Any) -> None:
    compile_ = torch.compile

    def noted(*args: Any, **kwargs: Any) -> Any:
        recorder = current()
        if recorder is not None:
            recorder.note("torch.compile was asked for; this was recorded in eager mode")
        return compile_(*args, **kwargs)

    torch.compile = noted


_LARGE = {"cpu": 1 << 13}  # elements from which computing takes longer than launching does
_LARGE_ELSEWHERE = 1 << 22
_dtype_names: dict[Any, str] = {}


def name_of(dtype: Any) -> str:
    """Torch takes longer to spell one than to launch an operation."""
    found = _dtype_names.get(dtype)
    if found is None:
        found = _dtype_names[dtype] = str(dtype).removeprefix("torch.")
    return found


def digest_of(torch: Any, tensor: Any) -> Any:
    """Facts, a vector of numbers that stays on the device, and a hash of all bits where torch has one."""
    return digests_of(torch, [tensor])[0]


def digests_of(torch: Any, tensors: list[Any]) -> list[Any]:
    """Of each tensor. What is not large is copied, all that is alike with one launch, and summed up at the next fetch."""
    digests: list[Any] = []
    waiting: dict[tuple[Any, Any], list[tuple[int, Any]]] = {}
    for place, tensor in enumerate(tensors):
        facts, flat = _flattened(torch, tensor)
        size = 0 if flat is None else flat.numel()
        if flat is None:
            digests.append((facts, [], None))
        elif size <= SMALL:
            # It may be written over before it is fetched.
            digests.append((facts, [flat.to(torch.float64, copy=True)], None))
        elif size < _LARGE.get(facts["dev"], _LARGE_ELSEWHERE):
            digests.append((facts, None, None))
            waiting.setdefault((flat.device, flat.dtype), []).append((place, flat))
        else:
            digests.append((facts, *_statistics(torch, flat)))
    recorder = current()
    for group in waiting.values():
        alone = len(group) == 1
        copy = group[0][1].clone() if alone else torch.cat([flat for _, flat in group])
        start = 0
        for place, flat in group:
            digests[place] = (digests[place][0], Held(copy, start, flat.numel()), None)
            start += flat.numel()
        if recorder is not None:
            recorder.held_bytes += 8 * start
    return digests


def _flattened(torch: Any, tensor: Any) -> tuple[dict[str, Any], Any]:
    """What is known of a tensor without looking into it, and its elements; None where it has none to look at."""
    if type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.wait()
    tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor: what this rank holds
    device = tensor.device.type
    facts = {"sh": list(tensor.shape), "dt": name_of(tensor.dtype), "dev": device}
    if device == "meta" or tensor.layout is not torch.strided or tensor.is_quantized:
        return facts, None
    flat = tensor.detach()
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj())
    return facts, flat.resolve_neg().reshape(-1)


def _statistics(torch: Any, flat: Any) -> tuple[list[Any], Any]:
    if not flat.is_floating_point():
        flat = flat.to(torch.float64)
    stride = flat.numel() // SAMPLES
    numbers = [
        torch.linalg.vector_norm(flat, dtype=torch.float64),
        flat.sum(dtype=torch.float64),
        *torch.aminmax(flat),
        flat[: stride * SAMPLES : stride].clone(),
    ]
    return numbers, [torch.hash_tensor(flat)] if hasattr(torch, "hash_tensor") else None


class _Places:
    """Where in the program an operation stands: module, phase, step. Fed by torch's global hooks."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.stack: list[str] = []
        self.phase = "f"
        self._calls = 0
        self._roots: dict[int, tuple[Any, dict[int, str]]] = {}
        self._names: list[dict[int, str]] = []
        self.parameters: dict[int, str] = {}
        self._of_node: dict[int, tuple[str, str, int]] = {}  # of a forward operation, for backward
        self._ours = (str(Path(torch.__file__).parent),)
        self.kept_candidates = 0
        modules = torch.nn.modules.module
        modules.register_module_forward_pre_hook(self._enter)
        modules.register_module_forward_hook(self._leave, always_call=True)
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

    def _enter(self, module: Any, _args: Any) -> None:
        if not self.stack or id(module) not in self._names[-1]:
            self._names.append(self._names_of(module))
        else:
            self._names.append(self._names[-1])
        self.stack.append(self._names[-1].get(id(module)) or type(module).__name__)

    def _leave(self, _module: Any, _args: Any, _output: Any) -> None:
        if not self.stack:
            return
        self.stack.pop()
        self._names.pop()
        recorder = current()
        if not self.stack and recorder is not None and not self._torch.is_grad_enabled():
            self._calls += 1
            if not recorder.optimizer_steps:
                recorder.step = (
                    self._calls
                )  # without training a call of the outermost module is a step

    def _names_of(self, root: Any) -> dict[int, str]:
        known = self._roots.get(id(root))
        if known is not None and known[0]() is root:
            return known[1]
        names = {id(module): name for name, module in root.named_modules()}
        self._roots[id(root)] = (weakref.ref(root), names)
        self.parameters.update({id(value): name for name, value in root.named_parameters()})
        return names

    def of_call(self) -> Place:
        """Where the operation that is called now stands. Backward stands where its forward operation stood."""
        torch = self._torch
        if torch._C._current_graph_task_id() != -1:
            node = torch._C._current_autograd_node()
            known = self._of_node.get(node._sequence_nr()) if node is not None else None
            return ("b", *(known or ("", *users_line(self._ours))))
        file, line = users_line(self._ours)
        module = self.stack[-1] if self.stack else ""
        if torch.is_grad_enabled():
            self._of_node[torch.autograd._get_sequence_nr() - 1] = (module, file, line)
        return (self.phase, module, file, line)

    def _before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._record_parameters(optimizer, "grad")
        self.phase = "o"

    def _after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self.phase = "f"
        self._record_parameters(optimizer, "param")
        recorder = current()
        if recorder is not None:
            recorder.optimizer_steps += 1
            recorder.step = recorder.optimizer_steps
            if recorder.optimizer_steps == 1:
                gc.collect()  # what stays is the program and its libraries: with it set aside, the collections
                gc.freeze()  # that recording brings about need not go through all of torch
        self._of_node.clear()

    def _record_parameters(self, optimizer: Any, what: str) -> None:
        """Every rank's own copy, as it stands around a step: what all ranks should have alike."""
        recorder = current()
        if recorder is None or not recorder.orders.parameters or not recorder.wants_more:
            return
        torch = self._torch
        with recorder.pause(), torch.no_grad():
            for group, held in enumerate(optimizer.param_groups):
                for place, parameter in enumerate(held["params"]):
                    value = parameter if what == "param" else parameter.grad
                    if value is None or hasattr(value, "_local_tensor"):
                        continue  # a shard differs between ranks by design
                    name = self.parameters.get(id(parameter), f"group{group}.{place}")
                    record = {"op": f"{what}::{name}", "p": "o", "m": name, "f": "", "l": 0}
                    digest = digest_of(torch, value)
                    recorder.emit({**record, "in": [], "ish": []}, [digest])


def _mode(torch: Any, places: _Places) -> Any:
    """The class is made here, because its base is torch's."""
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode

    memory = Memory(StorageWeakRef)
    base: Any = TorchDispatchMode

    class RecordingMode(base):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Nothing is compiled here; torch would load its compiler, 1.7 s, to say so."""
            return False

        def __torch_dispatch__(
            self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            recorder = current()
            if recorder is None or recorder.paused:
                return func(*args, **kwargs)
            operation = DispatcherCall(torch, func, args, kwargs)
            args, kwargs = operation.on_its_side(recorder.orders)
            if operation.is_capturing():
                recorder.note("a CUDA graph was captured; what it replays is not recorded")
            elif recorder.wants_more:
                call = _Call(torch, recorder, operation, places, memory)
                return call.recorded(args, kwargs)
            return operation.run(args, kwargs, recorder.orders)

    return RecordingMode()


class _Call:
    """One operation on its way into the stream."""

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        operation: DispatcherCall,
        places: _Places,
        memory: Memory,
    ) -> None:
        self._torch, self._recorder, self._operation = torch, recorder, operation
        self._memory = memory
        self._place = places.of_call()
        self._places = places

    def recorded(self, args: Any, kwargs: Any) -> Any:
        operation, memory, place = self._operation, self._memory, self._place
        inputs = operation.inputs(args, kwargs)
        saved = self._saved_before(args, kwargs)
        memory.note_unwritten(inputs, place, lambda record, tensor: self._emit(record, [tensor]))
        out = operation.run(args, kwargs, self._recorder.orders)
        outputs = operation.outputs(out)
        operation.remember_birth(outputs, self._recorder.orders)
        if operation.name in _EMPTY:
            for tensor in outputs:
                memory.unwritten(tensor, place)
            return out
        if operation.is_view or not outputs:
            return out
        phase, module, file, line = place
        record = {"op": operation.name, "p": phase, "m": module, "f": file, "l": line}
        record["in"] = [memory.writers(tensor) for tensor in inputs]
        record["ish"] = [[list(t.shape), name_of(t.dtype)] for t in inputs]
        if operation.is_random:
            record["r"] = 1
        index = self._emit(record, outputs)
        for tensor in outputs:
            memory.written(tensor, index)
        if saved is not None:
            self._save(saved, outputs)
        return out

    def _emit(self, record: dict[str, Any], tensors: list[Any]) -> int:
        with self._torch.no_grad():
            return self._recorder.emit(record, digests_of(self._torch, tensors))

    def _saved_before(self, args: Any, kwargs: Any) -> dict[str, Any] | None:
        """The inputs of the one operation that is to be kept, before it may write over them."""
        keep, operation = self._recorder.orders.keep, self._operation
        if keep is None or keep["op"] != operation.name or keep["s"] != self._recorder.step:
            return None
        if (keep["p"], keep["m"]) != self._place[:2]:
            return None
        self._places.kept_candidates += 1
        if self._places.kept_candidates - 1 != keep["nth"]:
            return None
        tensors = operation.inputs(args, kwargs)
        if sum(t.numel() * t.element_size() for t in tensors) > _MOST_KEPT_BYTES:
            self._recorder.note("the inputs of the operation are too large to be kept")
            return None
        return {
            "op": str(operation.func),
            "args": _detached(self._torch, args),
            "kwargs": _detached(self._torch, kwargs),
        }

    def _save(self, saved: dict[str, Any], outputs: list[Any]) -> None:
        saved["outputs"] = [_detached(self._torch, tensor) for tensor in outputs]
        path = Path(self._recorder.orders.out) / f"kept-{rank() or 0}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._torch.save(saved, path)


def _detached(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return getattr(value, "_local_tensor", value).detach().clone().cpu()
    if isinstance(value, (list, tuple)):
        return [_detached(torch, item) for item in value]
    if isinstance(value, dict):
        return {key: _detached(torch, item) for key, item in value.items()}
    plain = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout)
    return value if isinstance(value, plain) else str(value)
