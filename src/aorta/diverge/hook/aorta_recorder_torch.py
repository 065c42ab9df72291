"""Records what torch does, from the moment it is imported: a mode of its dispatcher, hooks of
modules and optimizers.

What an operation read is told by who wrote that memory last, so inputs cost nothing. Everything
here runs once for each call of the dispatcher, most of which are views: what can be known of an
operation, a shape or a line is found out once.
"""

import gc
import json
import math
import operator
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aorta.diverge.hook.aorta_recorder import (
        Place,
        Recorder,
        Written,
        current,
        is_users,
        rank,
    )
    from aorta.diverge.hook.aorta_recorder_digest import Digests, TensorKind
    from aorta.diverge.hook.aorta_recorder_operation import (
        Memory,
        OperationSignature,
        OtherSide,
        mapped,
    )
else:  # the directory of this file is on the path, and Aorta may not be installed
    from aorta_recorder import Place, Recorder, Written, current, is_users, rank
    from aorta_recorder_digest import Digests, TensorKind
    from aorta_recorder_operation import Memory, OperationSignature, OtherSide, mapped

_MOST_KEPT_BYTES = 64 * 2**20


def start(torch: Any) -> None:
    """Called once torch is whole."""
    recorder = current()
    if recorder is None:
        return
    torch.manual_seed(recorder.settings.seed)
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


def emit(
    recorder: Recorder,
    torch: Any,
    head: int,
    outputs: Sequence[Any],
    read: Sequence[Written] = (),
    kinds: Sequence[TensorKind] | None = None,
) -> int:
    """One more record, of tensors and, where they are known, their kinds. What that computes is
    nobody's operation, without gradient.
    """
    graded, was_paused, recorder.paused = torch.is_grad_enabled(), recorder.paused, True
    if graded:
        torch._C._set_grad_enabled(False)
    try:
        digests = digests_of(recorder, torch)
        if kinds is None:
            kinds = [digests.kind(tensor) for tensor in outputs]
        digests.take(outputs, kinds)
        return recorder.emit(head, read, [kind.number for kind in kinds])
    finally:
        recorder.paused = was_paused
        if graded:
            torch._C._set_grad_enabled(True)


def digests_of(recorder: Recorder, torch: Any) -> Digests:
    """Of the tensors of this recorder."""
    if recorder.digests is None:
        recorder.digests = Digests(torch, recorder)
    digests: Digests = recorder.digests
    return digests


class _Places:
    """Where in the program an operation stands: module, phase, step; by torch's global hooks."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.stack: list[str] = []
        self.phase = "f"
        self._roots: dict[int, tuple[Any, dict[int, str]]] = {}
        self._names: list[dict[int, str]] = []
        # Of each module that is being called: the frame of the call, and the user's line above it.
        self._calls_of: list[tuple[int, tuple[str, int]]] = []
        self._call_code = torch.nn.Module._call_impl.__code__
        self.parameters: dict[int, str] = {}
        self._of_node: dict[int, tuple[str, str, int]] = {}  # of a forward operation, for backward
        self._ours = (str(Path(torch.__file__).parent),)
        # Called for every operation: looked up once.
        self._is_graded = torch.is_grad_enabled
        self._graph_task = torch._C._current_graph_task_id
        self._node_number = torch.autograd._get_sequence_nr
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
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code is not self._call_code:
            frame = frame.f_back
        self._calls_of.append((id(frame), self._line(frame and frame.f_back)))

    def _leave(self, _module: Any, _args: Any, _output: Any) -> None:
        if self.stack:
            self.stack.pop()
            self._names.pop()
            self._calls_of.pop()

    def _names_of(self, root: Any) -> dict[int, str]:
        known = self._roots.get(id(root))
        if known is not None and known[0]() is root:
            return known[1]
        names = {id(module): name for name, module in root.named_modules()}
        self._roots[id(root)] = (weakref.ref(root), names)
        self.parameters.update({id(value): name for name, value in root.named_parameters()})
        return names

    def of_call(self) -> Place:
        """Of the operation that is called now. Backward stands where its forward one stood."""
        if self._graph_task() != -1:
            node = self._torch._C._current_autograd_node()
            known = self._of_node.get(node._sequence_nr()) if node is not None else None
            return ("b", *(known or ("", *self._line(sys._getframe(1)))))
        module = self.stack[-1] if self.stack else ""
        place = (module, *self._line(sys._getframe(1)))
        if self._is_graded():
            # The first since its node came about is the one: another that follows may have no node
            # of its own.
            self._of_node.setdefault(self._node_number() - 1, place)
        return (self.phase, *place)

    def note_node(self) -> None:
        """Of an operation that is not recorded: where it stands, should it have a backward."""
        node = self._node_number() - 1
        if node not in self._of_node and self._is_graded() and self._graph_task() == -1:
            module = self.stack[-1] if self.stack else ""
            self._of_node[node] = (module, *self._line(sys._getframe(1)))

    def _line(self, frame: Any) -> tuple[str, int]:
        """The user's innermost line from there on: what a module computes stands where the module
        was called, which was found out then.
        """
        calls, call_code = self._calls_of, self._call_code
        while frame is not None:
            code = frame.f_code
            if is_users(code.co_filename, self._ours):
                return code.co_filename, frame.f_lineno
            if code is call_code and calls and calls[-1][0] == id(frame):
                return calls[-1][1]
            frame = frame.f_back
        return "", 0

    def _before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._record_parameters(optimizer, "grad")
        self.phase = "o"

    def _after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self.phase = "f"
        self._record_parameters(optimizer, "param")
        recorder = current()
        if recorder is not None:
            recorder.step += 1
            if recorder.step == 1:
                # what stays is the program and its libraries: with it set aside, the collections
                gc.collect()
                gc.freeze()  # that recording brings about need not go through all of torch
        self._of_node.clear()

    def _record_parameters(self, optimizer: Any, what: str) -> None:
        """Every rank's own copy, as it stands around a step: what all ranks should have alike."""
        recorder = current()
        if recorder is None or not recorder.settings.parameters or not recorder.wants_more:
            return
        for group, held in enumerate(optimizer.param_groups):
            for place, parameter in enumerate(held["params"]):
                value = parameter if what == "param" else parameter.grad
                if value is None or hasattr(value, "_local_tensor"):
                    continue  # a shard differs between ranks by design
                name = self.parameters.get(id(parameter), f"group{group}.{place}")
                head = recorder.head(f"{what}::{name}", ("o", name, "", 0))
                emit(recorder, self._torch, head, [value])


def _mode(torch: Any, places: _Places) -> Any:
    """The class is made here, because its base is torch's."""
    from torch.utils._python_dispatch import TorchDispatchMode

    run = _Calls(torch, places).run
    base: Any = TorchDispatchMode

    class RecordingMode(base):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Nothing is compiled here; torch would load its compiler, 1.7 s, to say so."""
            return False

        def __torch_dispatch__(
            self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            recorder = current()
            if recorder is None or recorder.paused:
                return func(*args, **(kwargs or {}))
            return run(recorder, func, args, kwargs or {})

    return RecordingMode()


class _Calls:
    """The dispatcher's calls, on their way into the stream."""

    def __init__(self, torch: Any, places: _Places) -> None:
        self._torch, self._places = torch, places
        self._memory = Memory(torch)
        self._signatures: dict[int, OperationSignature] = {}
        with warnings.catch_warnings():
            # Some releases say, once, that there is a newer way to ask.
            warnings.simplefilter("ignore")
            with suppress(RuntimeError):
                _ = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    def run(self, recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
        signature = self._signatures.get(id(func))
        if signature is None:
            # Torch keeps every operation as long as the process lives.
            signature = self._signatures[id(func)] = OperationSignature(self._torch, func)
        if recorder.runs_otherwise:
            other = OtherSide(self._torch, signature, recorder.settings, kwargs)
            args, kwargs = other.arguments(args, kwargs)
            out = self._recorded(recorder, signature, other.run, args, kwargs)
            other.remember(signature.outputs(out, args, kwargs))
            return out
        if not signature.computes and self._memory.knows(signature.inputs(args, kwargs)):
            self._places.note_node()
            return signature.call(*args, **kwargs)
        return self._recorded(recorder, signature, signature.call, args, kwargs)

    def _recorded(
        self,
        recorder: Recorder,
        signature: OperationSignature,
        func: Callable[..., Any],
        args: Any,
        kwargs: Any,
    ) -> Any:
        if not recorder.wants_more or self._is_captured(recorder):
            return func(*args, **kwargs)
        memory, place = self._memory, self._places.of_call()
        inputs = signature.inputs(args, kwargs)
        read, kinds = self._read(recorder, place, inputs)
        saved, keep = None, recorder.settings.keep
        if keep is not None and keep == {"op": signature.name, "record": recorder.count}:
            saved = self._saved_before(recorder, signature, args, kwargs)
        out = func(*args, **kwargs)
        if not signature.computes:
            return out
        outputs = signature.outputs(out, args, kwargs)
        if signature.is_empty:
            for tensor in outputs:
                memory.unwritten(tensor, place)
        elif outputs:
            tf32 = signature.is_product and self._allows_tf32(signature)
            head = recorder.head(signature.name, place, random=signature.is_random, tf32=tf32)
            count = len(outputs)
            # In place: what is given is what was read first.
            in_place = count <= len(inputs) and all(map(operator.is_, outputs, inputs))
            given = kinds[:count] if in_place else None
            index = emit(recorder, self._torch, head, outputs, read, given)
            memory.written(outputs, index)
            if saved is not None:
                self._save(recorder, saved, outputs)
        return out

    def _read(
        self, recorder: Recorder, place: Place, inputs: list[Any]
    ) -> tuple[list[Written], list[TensorKind]]:
        """Of each tensor its writer, its kind and its offset, one behind the other; and the kinds.
        What nothing recorded wrote becomes a record of its own first.
        """
        digests = digests_of(recorder, self._torch)
        known, writers = digests.kinds, self._memory.writers
        read: list[Written] = []
        kinds: list[TensorKind] = []
        for tensor in inputs:
            try:
                written = writers.get(tensor.untyped_storage()._cdata)
                offset = tensor.storage_offset()
                kind = known.get((tensor.shape, tensor.dtype, tensor.device))
            except (NotImplementedError, RuntimeError):  # it has no one storage
                written, offset, kind = None, 0, None
            if written is None:
                written = self._emit_unwritten(recorder, place, tensor)
            if kind is None:
                kind = digests.kind(tensor)
            kinds.append(kind)
            read += (written, kind.number, offset)
        return read, kinds

    def _emit_unwritten(self, recorder: Recorder, place: Place, tensor: Any) -> Written:
        """What nothing recorded wrote is data from outside, or memory that was never written at
        all: a record here, of the place that asked for the memory, if one did.
        """
        memory = self._memory
        if tensor.numel() == 0:
            return []
        empty = memory.requested_at(tensor)
        head = recorder.head("aten::empty" if empty else "input", empty or place)
        index = emit(recorder, self._torch, head, [tensor])
        memory.written([tensor], index)
        return index if memory.knows([tensor]) else []

    def _is_captured(self, recorder: Recorder) -> bool:
        """Inside a CUDA graph nothing has a value yet."""
        cuda = self._torch.cuda
        captured = bool(cuda._initialized and cuda.is_current_stream_capturing())
        if captured:
            recorder.note("a CUDA graph was captured; what it replays is not recorded")
        return captured

    def _allows_tf32(self, signature: OperationSignature) -> bool:
        """Whether a GPU may round what a product reads to ten bits, as the program allows now."""
        torch = self._torch
        if not torch.cuda._initialized:
            return False
        backend = torch.backends.cudnn if signature.is_convolution else torch.backends.cuda.matmul
        try:
            return bool(backend.allow_tf32)
        except RuntimeError:  # said in torch's newer way
            newer = backend.conv if signature.is_convolution else backend
            return str(newer.fp32_precision) == "tf32"

    def _saved_before(
        self, recorder: Recorder, signature: OperationSignature, args: Any, kwargs: Any
    ) -> dict[str, Any] | None:
        """The inputs of the one operation that is to be kept, before it may write over them."""
        tensors = signature.inputs(args, kwargs)
        if sum(t.numel() * t.element_size() for t in tensors) > _MOST_KEPT_BYTES:
            recorder.note("the inputs of the operation are too large to be kept")
            return None
        return {
            "op": signature.overload,
            "args": _detached(self._torch, args),
            "kwargs": _detached(self._torch, kwargs),
            "names": signature.arguments,
        }

    def _save(self, recorder: Recorder, saved: dict[str, Any], outputs: list[Any]) -> None:
        """The tensors for torch; the other arguments, by name, for everybody."""
        saved["outputs"] = [_detached(self._torch, tensor) for tensor in outputs]
        path = Path(recorder.settings.out) / f"kept-{rank() or 0}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        named = {**dict(zip(saved.pop("names"), saved["args"], strict=False)), **saved["kwargs"]}
        values = {name: _spelled(value) for name, value in named.items()}
        plain = {name: value for name, value in values.items() if value is not None}
        path.with_suffix(".json").write_text(json.dumps(plain), encoding="utf-8")
        self._torch.save(saved, path)


def _spelled(value: Any) -> Any:
    """An argument as JSON has it; None for tensors and what holds them."""
    if isinstance(value, (list, tuple)):
        return found if None not in (found := [_spelled(item) for item in value]) else None
    if isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return None if value is None or hasattr(value, "untyped_storage") else str(value)


def _detached(torch: Any, value: Any) -> Any:
    plain = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout)

    def one(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return getattr(item, "_local_tensor", item).detach().clone().cpu()
        return item if isinstance(item, plain) else str(item)

    return mapped(value, one)
