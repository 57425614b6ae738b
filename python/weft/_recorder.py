"""Runs a function once on small tensors of its own and writes down the ATen operations that it is made of.

Two modes do it. `Lift` sees every torch function before anything else does, and puts stand-ins in the place of tensors
that come from outside (a closure's, a module's parameters). `Recorder` sees what arrives below autograd, where
composite operations have come apart already. The tensors are real ones, so operations do what they always do; only
what a program can't have is refused before it happens: values read by Python, outside tensors changed in place.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

from weft import _C, _step_functions
from weft._aten import UnsupportedError
from weft._operations import Draw, Meta, Operation, OwnDerivative, Ref
from weft._step_functions import CannotDrawError, ReadsValueError, ShapeFromValuesError

_aten = torch.ops.aten
_CALL = torch.ops.weft.call.default


class NeedsFunctionalError(Exception):
    """The function changes tensors of its own in place: it has to be recorded under functionalisation."""


class SideEffectError(RuntimeError):
    """The function does more than return its results."""


class MutatesCapturedError(SideEffectError):
    """The function changes a tensor that it doesn't own."""

    def __init__(self, message: str, tensor: Tensor | None = None) -> None:
        super().__init__(message)
        self.tensor = tensor


class Recorder(TorchDispatchMode):
    """The operations of what runs within, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Tensor] = []  # a tensor's id is its own only while it lives
        self._storages: set[int] = set()
        self._fixed: set[int] = set()  # storages that are the user's
        self._decomposing: set[Any] = set()  # some of PyTorch's decompositions come back to what they decompose

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # what is skipped here nobody compiles, and importing Dynamo takes most of a second

    # ---- tensors

    def number(self, tensor: Tensor) -> int | None:
        return self._numbers.get(id(tensor))

    def add(self, tensor: Tensor) -> int:
        self._kept.append(tensor)
        self._storages.add(_storage(tensor))
        return self._numbers.setdefault(id(tensor), len(self._kept) - 1)

    def add_fixed(self, tensor: Tensor) -> None:
        """A tensor whose memory may be somebody else's, and stays as it is."""
        self.add(tensor)
        self._fixed.add(_storage(tensor))

    def tensors(self) -> list[Tensor]:
        """By number."""
        return self._kept

    def owns(self, tensor: Tensor) -> bool:
        return id(tensor) in self._numbers

    def shares_memory(self, tensor: Tensor) -> bool:
        """With what the function makes; several tensors from outside may be views of one."""
        return _storage(tensor) in self._storages - self._fixed

    def forget(self) -> list[weakref.ref[Tensor]]:
        """Lets go of all tensors; what then still lives is held by somebody else."""
        references = [weakref.ref(tensor) for op in self.operations for tensor in op.results]
        for op in self.operations:
            op.results = []
        self._kept.clear()
        self._numbers.clear()
        return references

    # ---- operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return func(*args, **kwargs)
        _refuse_values(func, args)
        if func is _CALL:
            return self._program(*args)
        arguments = _in_order(func, args, kwargs)
        if (draw := _draw_of(func, arguments)) is not None:
            return self._draw(func, draw, args, kwargs)
        if func._schema.is_mutable:
            return self._in_place(func, arguments, args, kwargs)
        name = str(func)
        if not _C.knows_aten(name) and (result := self._decompose(func, args, kwargs)) is not NotImplemented:
            return result
        result = func(*args, **kwargs)
        self._record("weft.stop_gradient" if func is _aten.detach.default else func, arguments, result)
        return result

    def _decompose(self, func: Any, args: Any, kwargs: Any) -> Any:
        decomposition = _step_functions.decomposition(func)
        if decomposition is None or func in self._decomposing:
            return NotImplemented
        self._decomposing.add(func)
        try:
            expected = func(*args, **kwargs)  # a misfit is its error to raise: what it is made of may let it pass
            with self:
                result = decomposition(*args, **kwargs)
        finally:
            self._decomposing.discard(func)
        if result is NotImplemented:
            return result
        for a, b in zip(pytree.tree_leaves(expected), pytree.tree_leaves(result), strict=True):
            if isinstance(a, Tensor) and (a.shape != b.shape or a.dtype != b.dtype):
                raise UnsupportedError(f"{func}: is made of others as {b.dtype}{list(b.shape)}")
        with self:
            # What an operation was given is no result of it: autograd gives each result a history of its own.
            given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            return pytree.tree_map(lambda leaf: leaf.clone() if any(leaf is x for x in given) else leaf, result)

    def _record(self, target: Any, arguments: list[Any], result: Any) -> None:
        results = [t for t in (result if isinstance(result, tuple | list) else [result]) if isinstance(t, Tensor)]
        arguments = [self._refer(argument) for argument in arguments]
        stops = not torch.is_grad_enabled() and target != "weft.stop_gradient"
        # An operation may give back what it got (a view of everything): the number is the result's from here on.
        for tensor in results:
            self._numbers.pop(id(tensor), None)
        metas, numbers = [Meta.of(t) for t in results], [self.add(t) for t in results]
        self.operations.append(Operation(target, arguments, results, metas, numbers, stops))

    def _refer(self, argument: Any) -> Any:
        if isinstance(argument, Ref):
            return argument
        if isinstance(argument, Tensor):
            number = self.number(argument)
            if number is None:
                number = self._constant(argument)
            return Ref(number)
        if isinstance(argument, list | tuple):
            return [self._refer(item) for item in argument]
        return argument

    def _constant(self, tensor: Tensor) -> int:
        """A tensor that nobody recorded: one made of Python numbers, as in torch.tensor([1.0, 2.0])."""
        number = self.add(tensor)
        self.operations.append(Operation("constant", [], [tensor], [Meta.of(tensor)], [number], False))
        return number

    def _program(self, text: str, inputs: list[Tensor]) -> list[Tensor]:
        """A program inside: only the shapes of its results are needed."""
        meta = torch.ops.weft.call(text, [torch.empty_like(t, device="meta") for t in inputs])
        results = [torch.zeros(t.shape, dtype=t.dtype) for t in meta]
        self._record(text, list(inputs), results)
        return results

    def derived(self, text: str, inputs: list[Tensor], values: list[Tensor]) -> list[Tensor]:
        """The values, whose derivative is that program: (inputs..., values..., cotangents of the values...) ->
        cotangents of the floating inputs."""
        with alone():
            results = [value.detach().clone().requires_grad_() for value in values]
            self._record(OwnDerivative(text, len(inputs)), [*inputs, *values], results)
        return results

    def _draw(self, func: Any, draw: Draw, args: Any, kwargs: Any) -> Any:
        """The tensor of random numbers is drawn outside, before the function is run."""
        if draw.method == "dropout":
            x, p = args[0], draw.arguments[0]
            with self:
                mask = torch.empty(x.shape, dtype=x.dtype).bernoulli_(1 - p)
                return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask.bool()
        result = func(*args, **kwargs)
        self._record(draw, [], result)
        return result

    def _in_place(self, func: Any, arguments: list[Any], args: Any, kwargs: Any) -> Any:
        """A tensor that nothing shares memory with may change: from here on it is the result of the same operation out
        of place."""
        functional = _out_of_place(func)
        tensor = arguments[0] if arguments else None
        if functional is None or not isinstance(tensor, Tensor) or not self._may_change(tensor):
            raise NeedsFunctionalError(str(func))
        references = [self._refer(argument) for argument in arguments]
        result = func(*args, **kwargs)
        self._record(functional, references, result)
        return result

    def _may_change(self, tensor: Tensor) -> bool:
        storage = _storage(tensor)
        return storage not in self._fixed and sum(_storage(kept) == storage for kept in self._kept) == 1


_IN_PLACE = {
    "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__",
    "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "__imatmul__",
}  # fmt: skip


class Lift(TorchFunctionMode):
    """Puts a stand-in, which `stand_in` makes, in the place of each tensor that `recorder` hasn't seen."""

    def __init__(self, recorder: Recorder, what: str, stand_in: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.recorder, self.what = recorder, what
        self.captured: list[Tensor] = []  #: outside tensors, in order of appearance
        self.stand_ins: list[Tensor] = []
        self._stand_in = stand_in
        self._of: dict[int, Tensor] = {}
        self.functional = False  #: whether within torch.func.functionalize, which must know the stand-ins too

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _step_functions.refuse(func, args)
        self._refuse_mutation(func, args)
        args = [self.lift(argument) for argument in args]
        kwargs = {name: self.lift(argument) for name, argument in (kwargs or {}).items()}
        replacement = _step_functions.FUNCTIONS.get(func)
        return (replacement or func)(*args, **kwargs)

    def _refuse_mutation(self, func: Any, args: Any) -> None:
        name = getattr(func, "__name__", "")
        in_place = (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE
        if in_place and args and isinstance(args[0], Tensor) and not self._is_own(args[0]):
            raise MutatesCapturedError(f"{self.what} changes a captured tensor in place ({name})", args[0])

    def lift(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            return self._lift(argument)
        if type(argument) in (list, tuple):
            return type(argument)(self.lift(item) for item in argument)
        if type(argument) is dict:
            return {key: self.lift(value) for key, value in argument.items()}
        return argument

    def write_back(self) -> None:
        """Lets changes of functional stand-ins come out, to be refused."""
        for stand_in, wrapped in zip(self.stand_ins, self._of.values(), strict=True):
            torch._C._functorch._propagate_functional_input_mutation(stand_in, wrapped)

    def _is_own(self, tensor: Tensor) -> bool:
        return self.recorder.owns(unwrapped(tensor)) or _is_functional(tensor)

    def _lift(self, tensor: Tensor) -> Tensor:
        if self._is_own(tensor):
            return tensor
        found = self._of.get(id(tensor))
        if found is None:
            if is_plain(tensor) and self.recorder.shares_memory(tensor):
                return tensor  # made within by means that the recorder doesn't see, which it will say
            with alone():  # not the recorder, to which this is no part of the function
                found = self._of[id(tensor)] = self._stand_in(tensor)
            self.captured.append(tensor)
            self.stand_ins.append(found)
            self.recorder.add_fixed(found)
            if self.functional:
                level = torch._C._functorch.maybe_current_level()
                found = self._of[id(tensor)] = torch._C._functorch._wrap_functional_tensor(found, level)
        return found


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor's numbers can be read here: no subclass, no transform's wrapper."""
    return (
        type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not _is_functional(tensor)
        and not _C.is_recorded(tensor)
    )


def _is_functional(tensor: Tensor) -> bool:
    return torch._is_functional_tensor(tensor)


def unwrapped(tensor: Tensor) -> Tensor:
    """What the wrappers of torch.func's transforms, which the function itself may use, hold."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


@functools.cache
def _out_of_place(func: Any) -> Any:
    """aten.add.Tensor of aten.add_.Tensor."""
    name = func._schema.name.split("::")[-1]
    packet = getattr(_aten, name[:-1], None) if name.endswith("_") else None
    overload = func._overloadname
    return getattr(packet, overload, None) if packet is not None else None


def _in_order(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """All arguments in the schema's order, defaults filled in."""
    filled = list(args)
    for parameter in func._schema.arguments[len(args) :]:
        filled.append(kwargs.get(parameter.name, parameter.default_value))
    return filled


_VALUE_READERS = {_aten._local_scalar_dense.default, _aten.equal.default, _aten.is_nonzero.default, _aten.item.default}


def _refuse_values(func: Any, args: Any) -> None:
    if func in _VALUE_READERS:
        raise ReadsValueError
    if func is _aten.index.Tensor and not any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
        return  # only of a mask the shape is unknown
    if torch.Tag.dynamic_output_shape in func.tags:
        raise ShapeFromValuesError(str(func))


_DRAWS: dict[Any, Callable[..., Draw]] = {
    _aten.bernoulli_.float: lambda _, p=0.5, generator=None: Draw("bernoulli_", (p,)),
    _aten.bernoulli.p: lambda _, p=0.5, generator=None: Draw("bernoulli_", (p,)),
    _aten.rand.default: lambda *_: Draw("uniform_", ()),
    _aten.rand_like.default: lambda *_: Draw("uniform_", ()),
    _aten.randn.default: lambda *_: Draw("normal_", ()),
    _aten.randn_like.default: lambda *_: Draw("normal_", ()),
    _aten.uniform_.default: lambda _, low=0.0, high=1.0, generator=None: Draw("uniform_", (low, high)),
    _aten.normal_.default: lambda _, mean=0.0, std=1.0, generator=None: Draw("normal_", (mean, std)),
    _aten.exponential_.default: lambda _, rate=1.0, generator=None: Draw("exponential_", (rate,)),
    _aten.randint.default: lambda high, *_: Draw("random_", (0, high)),
    _aten.randint.low: lambda low, high, *_: Draw("random_", (low, high)),
    _aten.randint_like.default: lambda _, high, *__: Draw("random_", (0, high)),
    _aten.randint_like.low_dtype: lambda _, low, high, *__: Draw("random_", (low, high)),
    _aten.native_dropout.default: lambda _, p, train=True: Draw("dropout", (p,)),
}


def _draw_of(func: Any, arguments: list[Any]) -> Draw | None:
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return None
    make = _DRAWS.get(func)
    if make is None:
        if _step_functions.decomposition(func) is not None:
            return None
        raise CannotDrawError(str(func))
    return make(*arguments)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Within, no mode and no transform of the caller's is active, and his random numbers stay what they are."""
    with contextlib.ExitStack() as stack:
        if _C.recording():
            stack.enter_context(_C.Suspended())
        stack.enter_context(_C.WithoutSavedTensorHooks())
        if torch._C._functorch.peek_interpreter_stack() is not None:
            from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

            stack.enter_context(temporarily_clear_interpreter_stack())
        if torch._C._len_torch_dispatch_stack() or torch._C._dispatch_tls_is_dispatch_key_included(
            torch._C.DispatchKey.PreDispatch
        ):
            stack.enter_context(without_dispatch_modes())
        stack.enter_context(without_function_modes())
        stack.enter_context(without_traced_modules())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(without_autocast_cache())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        yield


@contextlib.contextmanager
def without_dispatch_modes() -> Iterator[None]:
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        yield


@contextlib.contextmanager
def without_function_modes() -> Iterator[None]:
    """A default device stays; outer traces', ours or export's, don't."""
    popped = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    for mode in reversed(popped):
        if isinstance(mode, DeviceContext):
            torch._C._push_on_torch_function_stack(mode)
    try:
        yield
    finally:
        for _ in range(torch._C._len_torch_function_stack()):
            torch._C._pop_torch_function_stack()
        for mode in reversed(popped):
            torch._C._push_on_torch_function_stack(mode)


@contextlib.contextmanager
def without_traced_modules() -> Iterator[None]:
    """torch.fx watches the calls of modules; it would count those that are only made here."""
    traced = sys.modules.get("torch.fx._symbolic_trace")
    before = torch.nn.Module.__call__
    if traced is None or before is traced._orig_module_call:
        yield
        return
    torch.nn.Module.__call__ = traced._orig_module_call
    try:
        yield
    finally:
        torch.nn.Module.__call__ = before


@contextlib.contextmanager
def without_autocast_cache() -> Iterator[None]:
    """A weight that autocast has cast before would come from nowhere."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def current_lift() -> Lift | None:
    """The function mode that stands above it."""
    for i in range(torch._C._len_torch_function_stack()):
        mode = torch._C._get_function_stack_at(i)
        if isinstance(mode, Lift):
            return mode
    return None


def current() -> Recorder | None:
    """The recorder that is at work in this thread."""
    for i in range(torch._C._len_torch_dispatch_stack()):
        mode = torch._C._get_dispatch_stack_at(i)
        if isinstance(mode, Recorder):
            return mode
    return None
