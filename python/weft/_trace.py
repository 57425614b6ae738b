"""A function of tensors as a program: traced once, for all sizes of the dims that may differ.

The function runs on small tensors of its own (`_recorder`), twice where some sizes are symbols, each time with other
small primes in their place. What both runs have alike is a number of the program; what differs as a symbol's primes do
is that symbol. A function that looks at its sizes and does something else for some of them gives two records that don't
match, and is traced for the sizes at hand.
"""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from weft import _fork, _own_functions, _recorder, _step_functions
from weft._aten import DTYPES, UnsupportedError
from weft._operations import Meta
from weft._recorder import MutatesCapturedError, Recorder, SideEffectError
from weft._trace_symbols import LARGEST, Key, Symbols
from weft._trace_writer import Noise, Run, Traced, Writer

__all__ = ["LARGEST", "MutatesCapturedError", "Noise", "SideEffectError", "Traced", "UnsupportedError", "trace"]

#: One trace at a time: the random numbers that it must leave as they were are the process's.
lock = threading.RLock()
_fork.hold_across_fork(lock, _fork.TRACE)


def trace(
    fn: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    what: str,
    dynamic: Callable[[int, Tensor], Sequence[int]] | None = None,
) -> Traced:
    """The program of `fn(*arguments)`.

    Of plain tensors among the arguments numbers are read too, since the function runs on some of them; of others (of
    FakeTensorMode, of torch.func's transforms) only shape and dtype. `dynamic` says for each tensor leaf which dims may
    be symbols (by default the leading one); of a fake tensor's dims those are that are SymInts. SymInts may be
    arguments too, and are numbers to the function.

    Leaves of the result must be tensors. Raises UnsupportedError for what a program can't express, SideEffectError for
    what it mustn't do, and whatever the function itself raises.
    """
    leaves, spec = pytree.tree_flatten(tuple(arguments))
    tracer = Tracer(fn, leaves, spec, what, dynamic or (lambda _, tensor: (0,)))
    with lock, _recorder.alone(), _own_functions.traced():
        return tracer.trace()


class Tracer:
    def __init__(
        self,
        fn: Callable[..., Any],
        leaves: list[Any],
        spec: pytree.TreeSpec,
        what: str,
        dynamic: Callable[[int, Tensor], Sequence[int]],
    ) -> None:
        self.fn, self.leaves, self.spec, self.what = fn, leaves, spec, what
        self.by_hint = False
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        for tensor in self.tensors:
            _check_supported(tensor)
        self.dynamic = {id(t): tuple(dynamic(i, t)) for i, t in enumerate(self.tensors)}

    def trace(self) -> Traced:
        for symbols in self._choices():
            try:
                return self._trace(symbols)
            except (_step_functions.ReadsValueError, SideEffectError) as error:
                raise self._explained(error) from None
            except Exception:
                if not symbols.keys:
                    raise
        raise AssertionError

    def _choices(self) -> Iterator[Symbols]:
        """All sizes that may be symbols, then with equal ones the same, then one less, then none."""
        keys = self._all_keys()
        if len({key.hint for key in keys}) < len(keys):
            yield Symbols(keys)
            self.by_hint = True
            keys = self._all_keys()
        yield Symbols(keys)
        if len(keys) > 1:
            for left_out in keys:
                yield Symbols([key for key in keys if key != left_out])
        if keys:
            yield Symbols([])

    def _all_keys(self) -> list[Key]:
        keys: dict[Key, None] = {}
        for tensor in self.tensors:
            for size, key in zip(tensor.shape, self._keys(tensor), strict=True):
                if isinstance(size, torch.SymInt):
                    keys.update((key, None) for key in self._outer_keys(size).values())
                elif key is not None:
                    keys[key] = None
        return list(keys)

    def _outer_keys(self, size: torch.SymInt) -> dict[Any, Key]:
        """Of an outer trace's symbols in `size`, by symbol."""
        hints = size.node.shape_env.backed_var_to_val
        symbols = sorted(size.node.expr.free_symbols, key=str)
        return {s: Key(int(hints[s]) if s in hints else None, "" if self.by_hint else str(s)) for s in symbols}

    def _number(self, number: Any, symbols: Symbols, run: int) -> Any:
        """What the run has for an outer trace's size; anything else is what it is."""
        if not isinstance(number, torch.SymInt):
            return number
        sizes = {}
        for symbol, key in self._outer_keys(number).items():
            sizes[symbol] = symbols.size(key, run) if key in symbols.keys else key.hint
            if sizes[symbol] is None:
                raise UnsupportedError(f"the size {number}, which is known only when it runs")
        return int(number.node.expr.subs(sizes))

    def _keys(self, tensor: Tensor) -> list[Key | None]:
        """For each dim what its symbol is known by; None where its size is a number, or an outer trace's."""
        keys: list[Key | None] = []
        plain = all(type(size) is int for size in tensor.shape) and not _is_fake(tensor)
        dims = self.dynamic.get(id(tensor))
        for dim, size in enumerate(tensor.shape):
            if plain and dims is not None and dim in dims and size >= 2:
                keys.append(Key(int(size)))
            else:
                keys.append(None)
        if plain and dims is None and not isinstance(tensor, torch.nn.Parameter) and tensor.dim() > 0:
            keys[0] = Key(int(tensor.shape[0]))  # of a captured one: a symbol if an argument's is
        return keys

    # ---- one run

    def _trace(self, symbols: Symbols) -> Traced:
        try:
            runs = [self._run(symbols, i, functional=False) for i in symbols.runs()]
        except _recorder.NeedsFunctionalError:
            runs = [self._run(symbols, i, functional=True) for i in symbols.runs()]
        traced = Writer(symbols, runs).write()
        self._find_leaks(symbols, runs)
        return traced

    def _run(self, symbols: Symbols, index: int, *, functional: bool) -> Run:
        recorder = Recorder()
        lift = _recorder.Lift(recorder, self.what, lambda t: self._stand_in(t, symbols, index, captured=True))
        inputs = [self._stand_in(t, symbols, index, captured=False) for t in self.tensors]
        metas = [Meta.of(tensor) for tensor in inputs]
        for tensor in inputs:
            recorder.add(tensor)
        given = iter(inputs)
        leaves = [next(given) if isinstance(a, Tensor) else self._number(a, symbols, index) for a in self.leaves]
        arguments = pytree.tree_unflatten(leaves, self.spec)
        fn = _functional(self.fn, lift) if functional else self.fn
        try:
            with recorder, lift:
                leaves, spec = pytree.tree_flatten(fn(*arguments))
                outputs = [lift.lift(leaf) if isinstance(leaf, Tensor) else torch.full((), leaf) for leaf in leaves]
                outputs = [_own(recorder, leaf) for leaf in outputs]
        except _recorder.NeedsFunctionalError:
            if functional:
                raise MutatesCapturedError(f"{self.what} changes a captured tensor in place") from None
            raise
        except _step_functions.CannotDrawError as error:
            raise UnsupportedError(f"{error}: random numbers that can't be drawn ahead") from None
        except _step_functions.ShapeFromValuesError as error:
            raise UnsupportedError(f"{error}: the shape of its result depends on values") from None
        _refuse_own_functions(outputs)
        return Run(recorder, lift, metas, outputs, spec)

    def _stand_in(self, tensor: Tensor, symbols: Symbols, run: int, *, captured: bool) -> Tensor:
        _check_supported(tensor)
        sizes = [
            symbols.size(key, run) if key in symbols.keys else int(self._number(size, symbols, run))
            for key, size in zip(self._keys(tensor), tensor.shape, strict=True)
        ]
        if not _recorder.is_plain(tensor) or _is_fake(tensor) or 0 in tensor.shape:
            result = numbers(sizes, tensor.dtype)
        else:
            result = tensor.detach()
            for dim, size in enumerate(sizes):
                if size != tensor.shape[dim]:
                    result = result.index_select(dim, torch.arange(size) % tensor.shape[dim])
            if result.is_inference() or (not captured and result.data_ptr() == tensor.data_ptr()):
                result = result.clone()
        if not result.is_floating_point() or (captured and not _may_need_gradient(tensor)):
            return result
        result.requires_grad_()
        return result if captured else result.clone()  # no leaf: a step may change its own arguments

    # ---- errors

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, SideEffectError):
            return error
        return RuntimeError(
            f"{self.what} needs the value of a tensor {place(error)}, as `if` on a tensor, .item() and int() do. It "
            "is captured once for all steps, when there are no values yet: use torch.where to choose between values, "
            "weft.while_loop for a loop, or a Python number from outside"
        )

    def _find_leaks(self, symbols: Symbols, runs: list[Run]) -> None:
        """Tensors of the run that somebody keeps: a list that was appended to, an attribute that was set."""
        references: list[weakref.ref[Tensor]] = []
        for run in runs:
            run.outputs, run.lift.stand_ins = [], []
            references += run.recorder.forget()
        if not any(reference() is not None for reference in references):
            return
        gc.collect()
        for reference in references:
            if (tensor := reference()) is not None:
                sizes = [symbols.hint(size) for size in tensor.shape]
                raise SideEffectError(
                    f"{self.what} has a side effect: a {_type_name(tensor.dtype, sizes)} that it computes is kept "
                    "after it returns, as by appending to a list or setting an attribute; return it as part of the "
                    "result instead"
                )


def _functional(fn: Callable[..., Any], lift: _recorder.Lift) -> Callable[..., Any]:
    """`fn` without changes in place: those of its own tensors become new tensors."""

    def run(*arguments: Any) -> Any:
        leaves, spec = pytree.tree_flatten(arguments)
        result_spec = None

        def flat(*flat_leaves: Any) -> list[Any]:
            nonlocal result_spec
            lift.functional = True
            results, result_spec = pytree.tree_flatten(fn(*pytree.tree_unflatten(list(flat_leaves), spec)))
            lift.write_back()
            lift.functional = False
            return [lift.lift(r) if isinstance(r, Tensor) else torch.full((), r) for r in results]

        results = torch.func.functionalize(flat, remove="mutations")(*leaves)
        assert result_spec is not None
        return pytree.tree_unflatten(results, result_spec)

    return run


def _own(recorder: Recorder, tensor: Tensor) -> Tensor:
    if not recorder.owns(tensor):
        raise UnsupportedError("a result that comes from no operation known to PyTorch's dispatcher")
    return tensor


def _refuse_own_functions(outputs: list[Tensor]) -> None:
    """A torch.autograd.Function's backward is Python that no operation tells of."""
    stack = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            raise UnsupportedError(f"the torch.autograd.Function {node.name()}, whose derivative is its own")
        stack += [parent for parent, _ in node.next_functions if parent is not None]


def _may_need_gradient(tensor: Tensor) -> bool:
    return tensor.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _is_fake(tensor: Tensor) -> bool:
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(tensor, fake.FakeTensor)


def _check_supported(tensor: Tensor) -> None:
    if tensor.layout != torch.strided:
        raise UnsupportedError(f"a tensor of layout {tensor.layout}")
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"a tensor on {tensor.device}")
    if tensor.dtype not in DTYPES:
        raise UnsupportedError(f"a tensor of {tensor.dtype}")
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__ and not _is_traced(tensor):
        raise UnsupportedError(f"a {type(tensor).__name__}, a subclass of Tensor with operations of its own")


def _is_traced(tensor: Tensor) -> bool:
    """Whether it is one of PyTorch's own subclasses that stand for tensors while these are traced."""
    functional = sys.modules.get("torch._subclasses.functional_tensor")
    return _is_fake(tensor) or (functional is not None and isinstance(tensor, functional.FunctionalTensor))


def numbers(sizes: list[int], dtype: torch.dtype) -> Tensor:
    """Some numbers, where there are none to be had."""
    if not dtype.is_floating_point:
        return torch.zeros(sizes, dtype=dtype)
    count = 1
    for size in sizes:
        count *= size
    return torch.linspace(0.1, 0.9, count).sin().reshape(sizes).to(dtype)


def _type_name(dtype: torch.dtype, sizes: Sequence[Any]) -> str:
    return f"{str(dtype).removeprefix('torch.')}[{','.join(map(str, sizes))}]"


#: Folders whose frames aren't the user's.
_OWN = tuple(f"{path}/" for path in (*torch.__path__, *sys.modules["weft"].__path__))


def place(error: BaseException) -> str:
    """Where in the user's own code an error came from."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OWN):
            return f"({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}: {frame.line})"
    return ""
