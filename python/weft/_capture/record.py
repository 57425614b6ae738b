"""Runs of a function on tensors without data, on which every operation is recorded (pytorch/record).

The record of a run is the key of its program (`programs`), and the source of the program (`trace`).
"""

from __future__ import annotations

import contextlib
import gc
import operator
import random
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor

from weft import _C
from weft._base import torch_private, trees, users_code
from weft._base.errors import (
    FailedError,
    LeakError,
    MutatesCapturedError,
    ReadsValueError,
    SideEffectError,
    UnrecordableError,
    UnsupportedError,
)
from weft._base.torch_private import (
    DisableTorchFunction,
    len_torch_dispatch_stack,
    len_torch_function_stack,
    peek_interpreter_stack,
    pytree,
)
from weft._capture import autograd_calls, autograd_function, autograd_hooks, modes
from weft._capture.indexing import ByTensors
from weft._capture.names import line_of, name_of
from weft._capture.runs import Function, Run, Shown, under_way

_READS = "weft: reads the value of a recorded tensor"


def record(function: Function, shown: Shown | None = None) -> Run:
    """Runs the function and records it.

    Raises:
        ReadsValueError, SideEffectError: the function does something forbidden.
        UnrecordableError: the function does something that a recording can't hold.
        FailedError: the function raised.
    """
    if _indexed_by_tensors and _codes(function) in _indexed_by_tensors:
        return _record(function, shown, ByTensors())
    try:
        return _record(function, shown)
    except ReadsValueError:
        indices = ByTensors()
        try:
            run = _record(function, shown, indices)
        except Exception:
            if indices.used:
                raise
        else:
            if len(_indexed_by_tensors) >= _MOST_CODES:
                _indexed_by_tensors.clear()
            _indexed_by_tensors.add(_codes(function))
            return run
        raise


#: The code of functions that must be run with `ByTensors`.
_indexed_by_tensors: set[Any] = set()
_MOST_CODES = 1024


def _codes(function: Function) -> tuple[Any, ...]:
    return tuple(getattr(user, "__code__", type(user)) for user in function.users)


def place_of(function: Function, operation: int) -> str:
    """The line of the user's code with the operation of this index; empty if it isn't found."""
    found = [""]

    def look() -> None:
        frame = users_code.innermost(sys._getframe(1))
        if frame is not None:
            found[0] = _described(
                traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            )

    with contextlib.suppress(Exception), randomness_kept():
        _record(function, None, ByTensors() if _codes(function) in _indexed_by_tensors else None, (operation, look))
    return found[0]


def _record(
    function: Function,
    shown: Shown | None,
    indices: ByTensors | None = None,
    watched: tuple[int, Callable[[], None]] | None = None,
) -> Run:
    autograd_calls.install()
    if _C.are_nodes_watched():
        raise UnsupportedError(autograd_calls.NODES_WATCHED)
    recording = _C.StepRecording(function.is_alone)
    if watched is not None:
        recording.look_at(*watched)
    run = Run(recording, None, peek_interpreter_stack() is not None, [], indices is not None)
    forward_mode = modes.in_forward_mode()
    arguments = _inputs(function, recording, shown)
    if function.spec is not None:
        arguments = pytree.tree_unflatten(arguments, function.spec)
    variables = _variables(function)
    try:
        with _Aside(run, indices, function.is_alone):
            sizes = _transformed_sizes if shown is None else shown.captured
            if sizes is not None and (shown is not None or run.transformed or forward_mode):
                with _Substitute(recording, sizes) as substitute:
                    outputs, run.extra = function.fn(*arguments)
                outputs = substitute.lift(outputs)
            else:
                outputs, run.extra = function.fn(*arguments)
            carries = _count(function)
            autograd_hooks.record_hooks(record, run, outputs, carries)
            recording.finish(outputs, carries)
    except Exception as error:
        raise _explained(function, recording, error) from (
            error if recording.failure is None and _READS not in str(error) else None
        )
    if recording.failure is not None:  # the function has caught the error as if it were its own
        raise _explained(function, recording, None)
    if forward_mode and recording.stops_gradients:
        raise UnsupportedError("torch.no_grad in forward mode, in which it stops nothing")
    if any(map(operator.is_not, _variables(function), variables)):
        raise SideEffectError(
            f"{function.what} has a side effect: it changes a variable that it reads from outside; "
            "keep what changes from step to step in the carry"
        )
    return run


def _inputs(function: Function, recording: _C.StepRecording, shown: Shown | None) -> list[Any]:
    needs_gradient = torch.is_grad_enabled()
    carries = function.carries or 0
    if shown is None:
        return recording.inputs_like(function.leaves, function.first_dims, needs_gradient, carries)
    sizes = iter(shown.sizes)
    return [
        recording.input(
            leaf.dtype,
            next(sizes),
            needs_gradient and (leaf.dtype.is_floating_point or leaf.dtype.is_complex),
            i < carries or leaf.requires_grad or modes.is_transformed(leaf),
        )
        if isinstance(leaf, Tensor)
        else shown.number(leaf)
        for i, leaf in enumerate(function.leaves)
    ]


def _count(function: Function) -> int | None:
    """The number of tensors among the carries."""
    if function.carries is None:
        return None
    return sum(isinstance(leaf, Tensor) for leaf in function.leaves[: function.carries])


def _variables(function: Function) -> list[Any]:
    """The cells of variables that the user's functions share with the functions around them."""
    return [variable for user in function.users for variable in _C.variables_of(user)]


class _Substitute(modes.Substitution):
    """Shows the function stand-ins, of other sizes, for tensors from outside."""

    def __init__(self, recording: _C.StepRecording, sizes: Callable[[Tensor], Sequence[int] | None]) -> None:
        super().__init__(self._stand_in)
        self.recording, self.sizes = recording, sizes

    def _stand_in(self, tensor: Tensor) -> Tensor:
        if _C.is_recorded(tensor):
            return tensor
        with DisableTorchFunction():
            if _C.is_recorded(modes.unwrapped(tensor)):  # in a transform that the function itself uses
                return tensor
            sizes = self.sizes(tensor)
            return tensor if sizes is None else self.recording.stand_in(tensor, list(sizes))


def _transformed_sizes(tensor: Tensor) -> Sequence[int] | None:
    """Sizes of plain stand-ins for tensors of torch.func's transforms and for tensors with a tangent."""
    return tensor.shape if modes.is_transformed(tensor) or _C.is_dual(tensor) else None


@contextlib.contextmanager
def randomness_kept() -> Iterator[None]:
    """Restores the state of Python's and NumPy's random numbers afterwards."""
    numpy = sys.modules.get("numpy")
    state, other = random.getstate(), numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(other)


class _Aside:
    """Records the run within, hidden from everything else that is active in this thread except `indices`."""

    def __init__(self, run: Run, indices: ByTensors | None, is_alone: bool = False) -> None:
        self.run, self.others = run, _others(run)
        if is_alone:
            self.others.append(modes.without_fused_attention)
        if indices is not None:
            self.others.append(lambda: indices)

    def __enter__(self) -> None:
        self.before, under_way.run = getattr(under_way, "run", None), self.run
        self.stack = contextlib.ExitStack() if self.others else None
        try:
            for other in self.others:
                self.stack.enter_context(other())
            self.run.recording.enter()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def __exit__(self, *error: Any) -> None:
        self.run.recording.leave()
        under_way.run = self.before
        if self.stack is not None:
            self.stack.__exit__(*error)


def _others(run: Run) -> list[Callable[[], Any]]:
    """The other active modes, each as a context that switches it off."""
    found: list[Callable[[], Any]] = []
    if run.transformed:
        found.append(torch_private.temporarily_clear_interpreter_stack)
    if len_torch_dispatch_stack():
        found.append(modes.without_dispatch_modes)
    if len_torch_function_stack():
        found.append(modes.without_function_modes)
    if torch.is_autocast_enabled("cpu"):
        found.append(modes.without_autocast_cache)
    if modes.modules_are_traced():
        found.append(modes.without_traced_modules)
    return found


def _explained(function: Function, recording: _C.StepRecording, error: BaseException | None) -> Exception:
    what = function.what
    kind, reason, changed = recording.failure or (None, "", None)
    if _is_in(error, _PRINTING):
        return UnsupportedError(
            f"it prints a tensor {place(error)}, and it is run before its tensors have values; return what is to be "
            "printed as part of y"
        )
    if error is not None and "call numpy() on" in str(error):
        return UnsupportedError(
            f"it makes a NumPy array of a tensor {place(error)}; use PyTorch's functions, and torch.as_tensor of arrays"
        )
    if kind == "reads" or (error is not None and _READS in str(error)):
        if (reader := _reader_in_pytorch(error)) is not None:
            return UnsupportedError(f"{reader}: looks at values")
        return ReadsValueError(
            f"{what} needs the value of a tensor {place(error)}, as `if` on a tensor, .item() and int() do. It "
            "is captured once for all steps, when there are no values yet: use torch.where to choose between values, "
            "weft.while_loop for a loop, or a Python number from outside"
        )
    if kind == "mutates":
        name = name_of(changed, function.users)
        described = f": {name}: {trees.describe(changed)}" if name else f": {trees.describe(changed)}"
        if (at := place(error) if error is not None else line_of(name, function.users).strip()) != "":
            described += f" {at}"
        return MutatesCapturedError(
            f"{what} changes a captured tensor in place ({reason}){described}; "
            "keep what changes from step to step in the carry",
            changed,
        )
    if kind == "unsupported":
        return UnsupportedError(reason if error is None else f"{reason} {place(error)}".rstrip())
    if kind == "unrecordable":
        return UnrecordableError(reason)
    return error if isinstance(error, UnsupportedError | SideEffectError) else FailedError(str(error))


#: Files of PyTorch through which a user's own reading of values passes: operators and methods of tensors.
_METHODS = torch_private.METHODS_FILES
_PYTORCH = tuple(f"{path}/" for path in torch.__path__)


#: Files in which PyTorch writes a tensor's text.
_PRINTING = torch_private.PRINTING_FILES


def _is_in(error: BaseException | None, files: tuple[str, ...]) -> TypeGuard[BaseException]:
    """Whether the error was raised in one of the files."""
    frame = None if error is None else error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename.startswith(files):
            return True
        frame = frame.tb_next
    return False


def _reader_in_pytorch(error: BaseException | None) -> str | None:
    """The function of PyTorch's, written in Python, that asked for a value; many do, to check their arguments."""
    frame = None if error is None else error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return None
    code = frame.tb_frame.f_code
    is_readers = code.co_filename.startswith(_PYTORCH) and not code.co_filename.startswith(_METHODS)
    name: str = getattr(code, "co_qualname", code.co_name)  # with the class's name from Python 3.11 on
    return name if is_readers else None


def refuse_leaks(function: Function, run: Run, has_own_sizes: bool = True) -> None:
    """Raises if somebody keeps a tensor of the run: a list that was appended to, an attribute that was set.

    `has_own_sizes`: the run's sizes are those of the user's call.
    """
    if not run.recording.leaks():
        return
    for generation in range(3):  # circles of references that the run has left are young; a whole collection takes long
        gc.collect(generation)
        if not run.recording.kept():
            return
    kept = run.recording.kept()
    # `kept` has the tensors that kept ones are made of, too
    names = [(name_of(tensor, function.users), tensor) for tensor in kept]
    name, tensor = next((pair for pair in names if pair[0]), ("", kept[0]))
    where = f"as {name}{line_of(name, function.users)}" if name else "as by appending to a list"
    described = trees.describe(tensor) if has_own_sizes else f"tensor ({str(tensor.dtype).removeprefix('torch.')})"
    # torch.nn.utils.weight_norm and spectral_norm set the weight at each call of the module
    hint = "; if torch.nn.utils.weight_norm or spectral_norm sets it, take theirs of torch.nn.utils.parametrizations"
    raise LeakError(
        f"{function.what} has a side effect: a {described} that it computes is kept "
        f"after it returns, {where}; return it as part of the result instead{hint if name.endswith('.weight') else ''}"
    )


def place(error: BaseException) -> str:
    """The place in the user's own code that an error came from."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if users_code.is_users(frame.filename):
            return _described(frame)
    return ""


def failure(error: BaseException) -> str:
    """Why a function fails in a program, though it doesn't in plain PyTorch, with the line. Autograd's words are about
    the recording's tensors, which may require gradients where the user's don't."""
    return f"{in_words(str(error))} {place(error)}".rstrip()


def in_words(said: str) -> str:
    """PyTorch's words about a recording's tensors, rewritten for the user's."""
    if "cannot resize variables" in said:
        return "resize_: a program's tensors keep their sizes; " + _OTHER_SIZES
    if "requires_grad" in said or "require grad" in said or "requires grad" in said:
        return "what autograd refuses for tensors with gradients, which those of a program may have"
    if _OF_META.search(said):
        return "an operation of which PyTorch can't tell the result's shape and type without values"
    return said


#: What to write in place of a resize.
_OTHER_SIZES = "x.reshape(-1)[:n].reshape(sizes) takes fewer elements, torch.nn.functional.pad adds some"
#: PyTorch's words for tensors without values.
_OF_META = re.compile(r"\b(meta|Meta)\b (tensor|device|kernel|backend)|device (type )?'?meta\b|FakeTensor")


def _described(frame: traceback.FrameSummary) -> str:
    return f"({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}: {frame.line})"


# At import: since 2.14 an `apply` that a user keeps (`spike = Spike.apply`) must already be ours.
autograd_function.install(record)
