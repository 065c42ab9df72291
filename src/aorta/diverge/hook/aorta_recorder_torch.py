"""Records what torch does once it is imported: kernels before its own, and its global hooks.

What an operation read is known by who wrote that memory last, so inputs cost nothing. This runs for
each operation: facts of operations, shapes and lines are cached.
"""

import importlib
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aorta.diverge.hook.aorta_recorder import Place, Recorder, Written, is_users
    from aorta.diverge.hook.aorta_recorder_digest import Digests
    from aorta.diverge.hook.aorta_recorder_operation import (
        Memory,
        OperationSignature,
        OtherSide,
        computes,
        is_view,
    )
else:  # the directory of this file is on the path, and Aorta may not be installed
    from aorta_recorder import Place, Recorder, Written, is_users
    from aorta_recorder_digest import Digests
    from aorta_recorder_operation import Memory, OperationSignature, OtherSide, computes, is_view

torch: Any = sys.modules["torch"]  # whole before this is loaded
_MOST_VIEWS = 16  # one behind the other
_OWN_FRAMES = 2  # from where places are found out to what the dispatcher calls
_KEY = "Fake"  # of the dispatcher
_FP32_PRECISION = getattr(torch._C, "_get_fp32_precision_getter", None)  # from torch 2.9 on


def start() -> None:
    """Called once torch is whole."""
    recorder = Recorder.current
    if recorder is None:
        return
    torch.manual_seed(recorder.settings.seed)
    RecordingKernels(recorder.runs_otherwise)
    if recorder.runs_otherwise:
        _write_attention_out()
    _say_when_compiled()
    _leave_out_printing()


def _write_attention_out() -> None:
    """A fused kernel draws numbers by itself, where its device stands."""
    for name in ("flash", "mem_efficient", "cudnn"):
        enable = getattr(torch.backends.cuda, f"enable_{name}_sdp", None)
        if enable is not None:
            enable(False)


def _say_when_compiled() -> None:
    compile_ = torch.compile

    def noted(*args: Any, **kwargs: Any) -> Any:
        if Recorder.current is not None:
            Recorder.current.note("torch.compile was asked for; this was recorded in eager mode")
        return compile_(*args, **kwargs)

    torch.compile = noted


def _leave_out_printing() -> None:
    """What is computed to print a tensor is nobody's operation."""
    words_of = torch._tensor_str._str

    def unrecorded(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_key())):
            return words_of(*args, **kwargs)

    torch._tensor_str._str = unrecorded


def _key() -> Any:
    return torch._C._parse_dispatch_key(_KEY)


def emit(recorder: Recorder, head: int, value: Any) -> None:
    """Record a tensor outside of any operation; what its digest computes is not recorded."""
    recorder.paused = True
    try:
        with torch.no_grad():
            recorder.emit(head, (), digests_of(recorder).take([value]))
    finally:
        recorder.paused = False


def digests_of(recorder: Recorder) -> Digests:
    """Of the tensors of this recorder."""
    if recorder.digests is None:
        recorder.digests = Digests(recorder)
    digests: Digests = recorder.digests
    return digests


class _Places:
    """Where in the program an operation stands: module, phase, step; by torch's global hooks."""

    def __init__(self) -> None:
        self.phase = "f"
        # Of each module that is being called: its name, the names of all modules of its root, the
        # frame of the call as `id` has it, and the user's line above it.
        self._calls: list[tuple[str, dict[int, str], int, tuple[str, int]]] = []
        self._call_code = torch.nn.Module._call_impl.__code__
        self._roots: dict[int, tuple[Any, dict[int, str]]] = {}
        self._parameters: dict[int, str] = {}
        self._of_node: dict[int, Place] = {}  # by the number of a node: what its backward is of
        self._ours = (str(Path(torch.__file__).parent),)
        self._users: dict[str, bool] = {}  # whether the lines of a file are the user's
        # Called for every operation: looked up once.
        self._is_graded = torch.is_grad_enabled
        self._graph_task = torch._C._current_graph_task_id
        self._current_node = torch._C._current_autograd_node
        self._own_function = torch.autograd.function.BackwardCFunction
        self._node_number = torch.autograd._get_sequence_nr
        modules = torch.nn.modules.module
        optimizers = importlib.import_module("torch.optim.optimizer")
        modules.register_module_forward_pre_hook(self._enter)
        modules.register_module_forward_hook(self._leave, always_call=True)
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(self._after_step)

    def _enter(self, module: Any, _args: Any) -> None:
        calls = self._calls
        is_inside = calls and id(module) in calls[-1][1]
        names = calls[-1][1] if is_inside else self._names_of(module)
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code is not self._call_code:
            frame = frame.f_back
        name = names.get(id(module)) or type(module).__name__
        calls.append((name, names, id(frame), self._line(frame and frame.f_back)))

    def _leave(self, _module: Any, _args: Any, _output: Any) -> None:
        if self._calls:
            self._calls.pop()

    def _names_of(self, root: Any) -> dict[int, str]:
        known = self._roots.get(id(root))
        if known is not None and known[0]() is root:
            return known[1]
        names = {id(module): name for name, module in root.named_modules()}
        self._roots[id(root)] = (weakref.ref(root), names)
        self._parameters.update({id(value): name for name, value in root.named_parameters()})
        return names

    def of_call(self) -> Place:
        """Of the operation that is called now. Backward stands where its forward one stood."""
        if self._graph_task() != -1:
            # On a GPU its thread begins in the dispatcher: the main one waits where it was called.
            frame = sys._getframe(_OWN_FRAMES).f_back
            return self._of_backward() or ("b", "", *self._line(frame or _main_frame()))
        module = self._calls[-1][0] if self._calls else ""
        file, line = self._line(sys._getframe(_OWN_FRAMES).f_back)
        if self._is_graded():
            # The first since its node came about: one that follows may have no node of its own.
            number = self._node_number() - 1
            if number not in self._of_node:
                self._of_node[number] = ("b", module, file, line)
        return (self.phase, module, file, line)

    def _of_backward(self) -> Place | None:
        """Where the forward operation stands; a view's node counts as the operation behind it."""
        node = self._current_node()
        if node is None:
            return None
        number, known = node._sequence_nr(), self._of_node
        found = known.get(number)
        if found is None and not isinstance(node, self._own_function):
            for later in range(number + 1, number + _MOST_VIEWS):
                if later in known:
                    found = known[number] = known[later]
                    break
        return found

    def _line(self, frame: Any) -> tuple[str, int]:
        """The user's innermost line; for a module's insides, the cached line of its call."""
        users, call_code = self._users, self._call_code
        while frame is not None:
            code = frame.f_code
            file = code.co_filename
            is_users_own = users.get(file)
            if is_users_own is None:
                is_users_own = users[file] = is_users(file, self._ours)
            if is_users_own:
                return file, frame.f_lineno
            if code is call_code and self._calls and self._calls[-1][2] == id(frame):
                return self._calls[-1][3]
            frame = frame.f_back
        return "", 0

    def _before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._record_parameters(optimizer, "grad")
        self.phase = "o"

    def _after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self.phase = "f"
        self._record_parameters(optimizer, "param")
        recorder = Recorder.current
        if recorder is not None:
            recorder.next_step()
        self._of_node.clear()

    def _record_parameters(self, optimizer: Any, what: str) -> None:
        """Every rank's own copy, as it stands around a step: what all ranks should have alike."""
        recorder = Recorder.current
        if recorder is None or not recorder.settings.parameters or not recorder.is_on:
            return
        for group, held in enumerate(optimizer.param_groups):
            for place, parameter in enumerate(held["params"]):
                value = parameter if what == "param" else parameter.grad
                if value is None or hasattr(value, "_local_tensor"):
                    continue  # a shard differs between ranks by design
                name = self._parameters.get(id(parameter), f"group{group}.{place}")
                head = recorder.head(f"{what}::{name}", ("o", name, "", 0))
                emit(recorder, head, value)


class RecordingKernels:
    """The dispatcher's calls, on their way into the stream.

    Kernels of a key that stands below autograd and that nothing of torch's own has, for what
    computes alone: a mode would bring every view to Python, and most calls are views.
    """

    def __init__(self, takes_all: bool) -> None:
        self._places, self._memory = _Places(), Memory()
        self._takes_all = takes_all  # whatever is no view
        self._key = _key()
        self._rest = torch._C._dispatch_library("IMPL", "_", _KEY)
        self._rest.fallback_fallthrough(_KEY)
        self._libraries: dict[str, Any] = {}  # by namespace; what they register goes with them
        self._known: set[str] = set()
        self._packets: set[str] = set()  # of overloads
        self._register()
        self._watch()
        torch._C._dispatch_tls_set_dispatch_key_included(self._key, True)

    def _register(self) -> None:
        """A kernel for every operation that there is by now."""
        for name in torch._C._dispatch_get_all_op_names():
            space, _, short = name.partition("::")
            if name in self._known or space == "prim":
                continue
            packet, _, overload = name.partition(".")
            try:
                schema = torch._C._get_schema(packet, overload)
            except RuntimeError:  # implemented by now, and to be defined
                continue
            self._known.add(name)
            self._packets.add(packet)
            if not is_view(schema) and (self._takes_all or computes(schema)):
                if space not in self._libraries:
                    self._libraries[space] = torch.library.Library(space, "IMPL", _KEY)
                self._libraries[space].impl(short, self._kernel(name))

    def _watch(self) -> None:
        """Operations of the user's own, or of a library loaded later: before they are called."""
        spaces = torch._ops._OpNamespace
        find = spaces.__getattr__

        def found(space: Any, name: str) -> Any:
            packet = find(space, name)
            if f"{space.name}::{name}" not in self._packets:
                self._register()
            return packet

        spaces.__getattr__ = found

    def _kernel(self, name: str) -> Callable[..., Any]:
        signature: OperationSignature | None = None
        key, exclude = self._key, torch._C._dispatch_tls_set_dispatch_key_excluded
        modes = torch._C._len_torch_dispatch_stack

        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal signature
            if signature is None:
                signature = OperationSignature(_operation(name))
            if modes():  # of the program: they come first, and call what comes here again
                return _by_mode(_operation(name), signature, args, kwargs)
            exclude(key, True)
            try:
                recorder = Recorder.current
                if recorder is None or recorder.paused:
                    return signature.call(*args, **kwargs)
                is_recorded = signature.computes and recorder.is_on
                if is_recorded and _is_captured(recorder):
                    recorder.note("a CUDA graph was captured; what it replays is not recorded")
                    is_recorded = False  # inside of one nothing has a value yet
                if recorder.runs_otherwise:
                    return self._otherwise(recorder, signature, args, kwargs, is_recorded)
                if is_recorded:
                    return self._recorded(recorder, signature, signature.call, args, kwargs)
                return signature.call(*args, **kwargs)
            finally:
                exclude(key, False)

        return called

    def _otherwise(
        self,
        recorder: Recorder,
        signature: OperationSignature,
        args: Any,
        kwargs: Any,
        is_recorded: bool,
    ) -> Any:
        """Not as the program says."""
        other = OtherSide(signature, recorder.settings, kwargs)
        args, kwargs = other.arguments(args, kwargs)
        if is_recorded:
            out = self._recorded(recorder, signature, other.run, args, kwargs)
        else:
            out = other.run(*args, **kwargs)
        other.remember(signature.outputs(out, args, kwargs))
        return out

    def _recorded(
        self,
        recorder: Recorder,
        signature: OperationSignature,
        call: Callable[..., Any],
        args: Any,
        kwargs: Any,
    ) -> Any:
        memory, place = self._memory, self._places.of_call()
        if signature.is_copy and memory.copied_bytes(*args[:2]):
            return call(*args, **kwargs)
        if signature.is_fresh:
            out = call(*args, **kwargs)
            memory.unwritten(out, "input", place)
            return out
        digests = recorder.digests or digests_of(recorder)
        read = self._read(recorder, digests, place, signature.inputs(args, kwargs))
        if signature.overwrites:
            targets = signature.overwritten(args, kwargs)
            self._emit_rest(recorder, digests, place, targets)
            read += self._places_in_memory(recorder, digests, targets)
        out = call(*args, **kwargs)
        outputs = signature.outputs(out, args, kwargs)
        if signature.is_empty:
            for tensor in outputs:
                memory.unwritten(tensor, "aten::empty", place)
        elif outputs:
            tf32 = recorder.is_on_gpu and signature.is_product and _allows_tf32(signature)
            head = recorder.head(signature.name, place, signature.is_random, tf32)
            # What is written in place, and was not only written over, was read first.
            known = tuple(read[1 : 3 * len(outputs) : 3]) if signature.is_in_place else ()
            memory.written(outputs, recorder.emit(head, read, digests.take(outputs, known)))
        return out

    def _read(
        self, recorder: Recorder, digests: Digests, place: Place, inputs: list[Any]
    ) -> list[Any]:
        """Writer, kind and offset of each tensor; one that nothing wrote is recorded first."""
        read: list[Any] = []
        known, last_of, others = digests.kinds.get, self._memory.writers.get, []
        for tensor in inputs:
            try:
                by = last_of(tensor.untyped_storage()._cdata)
                begin = tensor.storage_offset()
            except (NotImplementedError, RuntimeError):  # it has no one storage: a sparse one
                by, begin = None, 0
            if type(by) is not int:
                others.append((len(read), by, tensor))
            key = (tensor.shape, tensor.dtype, tensor.get_device())
            read += (by, (known(key) or digests.kind(tensor)).number, begin)
        for at, written, tensor in others:
            by = written
            if by is None:
                by = self._emit_unwritten(recorder, digests, place, tensor)
            read[at] = by if isinstance(by, int) else -1 - recorder.number_of(tuple(by), by)
        return read

    def _emit_unwritten(
        self, recorder: Recorder, digests: Digests, place: Place, tensor: Any
    ) -> Written:
        """Data from outside, or memory never written: a record at the place that allocated it."""
        memory = self._memory
        if tensor.numel() == 0:
            return []
        head = recorder.head(*(memory.came_from(tensor) or ("input", place)))
        index = recorder.emit(head, (), digests.take([tensor]))
        return index if memory.written([tensor], index) else []

    def _places_in_memory(
        self, recorder: Recorder, digests: Digests, targets: list[Any]
    ) -> list[int]:
        """Of what is written over in part: as if it were read, but written by nobody."""
        nobody = -1 - recorder.number_of("nobody", [])
        parts = [one for one in targets if one._base is not None]
        return [
            number
            for one in parts
            for number in (nobody, digests.kind(one).number, one.storage_offset())
        ]

    def _emit_rest(
        self, recorder: Recorder, digests: Digests, place: Place, targets: list[Any]
    ) -> None:
        """What is about to be written in part, and nothing recorded wrote before."""
        for tensor in targets:
            whole = tensor if tensor._base is None else tensor._base
            if tensor.numel() < whole.numel() and not self._memory.knows(whole):
                self._emit_unwritten(recorder, digests, place, whole)


def _by_mode(func: Any, signature: OperationSignature, args: Any, kwargs: Any) -> Any:
    plain = (torch.Tensor, torch.nn.Parameter)
    kinds = {type(one) for one in signature.tensors([*args, *kwargs.values()])}
    with torch.utils._python_dispatch._pop_mode_temporarily() as mode:
        return mode.__torch_dispatch__(func, tuple(kinds.difference(plain)), args, kwargs)


def _main_frame() -> Any:
    return sys._current_frames().get(threading.main_thread().ident or 0)


def _operation(name: str) -> Any:
    space, _, short = name.partition("::")
    base, _, overload = short.partition(".")
    return getattr(getattr(getattr(torch.ops, space), base), overload or "default")


def _is_captured(recorder: Recorder) -> bool:
    has_gpu = recorder.is_on_gpu or torch.cuda.is_initialized()
    return has_gpu and torch._C._cuda_isCurrentStreamCapturing()  # type: ignore[no-any-return]


def _allows_tf32(signature: OperationSignature) -> bool:
    """Whether a GPU may round what a product reads to ten bits, as the program allows now."""
    of_cudnn = signature.of_cudnn
    if _FP32_PRECISION is not None:
        # By its attribute in torch.backends it takes ten times as long.
        return bool(_FP32_PRECISION("cuda", of_cudnn or "matmul") == "tf32")
    backends = torch.backends
    return bool((backends.cudnn if of_cudnn else backends.cuda.matmul).allow_tf32)
