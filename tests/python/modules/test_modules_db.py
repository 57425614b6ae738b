"""PyTorch's own checks of its recurrent modules, on the configurations that PyTorch's tests have for them.

The configurations and the wrong inputs are those of torch.testing._internal.common_modules.module_db; what is checked
of each is what PyTorch's test/test_modules.py, which is in no wheel, checks of every module on the CPU.
"""

from __future__ import annotations

import copy
import io
import itertools
import os
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.common_modules import ModuleErrorEnum, ModuleInfo, ModuleInput, module_db
from torch.testing._internal.common_utils import gradcheck, gradgradcheck
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

import weft

CLASSES = (nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.GRUCell, nn.LSTMCell)
INFOS = [info for info in module_db if info.module_cls in CLASSES]
DTYPES = (torch.float32, torch.float64)

pytestmark = [
    pytest.mark.parametrize("training", [True, False], ids=["train", "eval"]),
    pytest.mark.parametrize("info", INFOS, ids=lambda info: info.module_cls.__name__),
    pytest.mark.filterwarnings("ignore:weft", "ignore:LSTM with projections is not supported with oneDNN"),
]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])


@pytest.fixture(autouse=True)
def _no_fallbacks():
    yield
    assert not weft.stats()["fallbacks"]


def test_there_are_entries(info: ModuleInfo, training: bool) -> None:
    assert {entry.module_cls for entry in INFOS} == set(CLASSES)
    assert list(samples(info, torch.float32, training))


def samples(
    info: ModuleInfo, dtype: torch.dtype, training: bool, requires_grad: bool = False, device: str | None = "cpu"
) -> Iterator[ModuleInput]:
    """The entry's configurations that have an input to forward; packed sequences beside them where the entry can."""
    options = dict(device=device, dtype=dtype, requires_grad=requires_grad, training=training)
    found = list(info.module_inputs_func(info, **options))
    if info.module_cls in (nn.RNN, nn.GRU) and device == "cpu" and not requires_grad:
        packed = list(info.module_inputs_func(info, **options, with_packed_sequence=True))
        assert len(packed) == 2 * len(found)
        found = packed
    return (sample for sample in found if sample.forward_input is not None)


def build(info: ModuleInfo, sample: ModuleInput, dtype: torch.dtype, training: bool) -> nn.Module:
    constructor = sample.constructor_input
    return info.module_cls(*constructor.args, **constructor.kwargs).to("cpu").to(dtype).train(training)


def run(module: nn.Module, sample: ModuleInput) -> Any:
    return module(*sample.forward_input.args, **sample.forward_input.kwargs)


def is_packed(sample: ModuleInput) -> bool:
    return isinstance(sample.forward_input.args[0], nn.utils.rnn.PackedSequence)


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def assert_equal(ours: Any, theirs: Any, **tolerances: float) -> None:
    ours, theirs = tensors(ours), tensors(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, **tolerances)


def assert_dtype(module: nn.Module, dtype: torch.dtype) -> None:
    for parameter in module.parameters():
        assert parameter.dtype == dtype and parameter.device.type == "cpu"


@each_dtype
def test_forward(info: ModuleInfo, training: bool, dtype: torch.dtype) -> None:
    for sample in samples(info, dtype, training):
        module = build(info, sample, dtype, training)
        outputs = run(module, sample)
        if sample.reference_fn is not None and not is_packed(sample):
            assert_equal(
                outputs, sample.reference_fn(module, *sample.forward_input.args, **sample.forward_input.kwargs)
            )
        with weft.disabled():
            assert_equal(outputs, run(module, sample))
        module = module.float() if dtype == torch.float32 else module.double()
        assert_equal(outputs, run(module, sample))
        assert_dtype(module, dtype)


@each_dtype
def test_made_with_device_and_dtype(info: ModuleInfo, training: bool, dtype: torch.dtype) -> None:
    for sample in samples(info, dtype, training):
        constructor = sample.constructor_input
        module = info.module_cls(*constructor.args, **constructor.kwargs, device="cpu", dtype=dtype).train(training)
        assert_dtype(module, dtype)
        assert all(out.dtype == dtype for out in tensors(run(module, sample)) if out.is_floating_point())
        meta = info.module_cls(*constructor.args, **constructor.kwargs, device="meta", dtype=dtype)
        assert all(parameter.is_meta for parameter in meta.parameters())
        module = meta.to_empty(device="cpu")
        module.reset_parameters()
        run(module, sample)


@each_dtype
def test_moved_to_another_dtype_and_back(info: ModuleInfo, training: bool, dtype: torch.dtype) -> None:
    other = torch.float64 if dtype == torch.float32 else torch.float32
    for sample in samples(info, dtype, training):
        module = build(info, sample, other, training)
        with weft.disabled():
            theirs = run(module.to(dtype), sample)
        if not is_packed(sample):
            module.to(other)(*tree_map_only(Tensor, lambda tensor: tensor.to(other), sample.forward_input.args))
        assert_equal(run(module.to(dtype), sample), theirs)
        assert_dtype(module, dtype)


@each_dtype
def test_meta_tensors_give_the_shapes(info: ModuleInfo, training: bool, dtype: torch.dtype) -> None:
    for sample in samples(info, dtype, training):
        if is_packed(sample):
            continue
        module = build(info, sample, dtype, training)
        real = tensors(run(module, sample))
        args = tree_map_only(Tensor, lambda t: t.to("meta"), sample.forward_input.args)
        for a, b in zip(tensors(module.to("meta")(*args)), real, strict=True):
            assert a.is_meta and a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()


@each_dtype
def test_repr(info: ModuleInfo, training: bool, dtype: torch.dtype) -> None:
    for sample in samples(info, dtype, training):
        module = build(info, sample, dtype, training)
        with weft.disabled():
            theirs = repr(module)
        run(module, sample)
        assert repr(module) == theirs == str(module)


@each_dtype
def test_pickle_and_deepcopy(info: ModuleInfo, training: bool, dtype: torch.dtype) -> None:
    def saved(module: nn.Module) -> nn.Module:
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        return torch.load(file, weights_only=False)

    for sample in samples(info, dtype, training):
        module = build(info, sample, dtype, training)
        outputs = run(module, sample)
        for again in (saved, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))):
            assert_equal(run(again(module), sample), outputs, rtol=0, atol=0)


def spread(tensor: Tensor) -> Tensor:
    """The same values, with gaps between them in memory."""
    apart = torch.repeat_interleave(tensor.detach(), 2, dim=-1)[..., ::2]
    assert tensor.numel() < 2 or not apart.is_contiguous()
    return apart.requires_grad_(tensor.requires_grad)


@each_dtype
def test_non_contiguous_tensors(info: ModuleInfo, training: bool, dtype: torch.dtype) -> None:
    for sample in samples(info, dtype, training, requires_grad=True):
        module = build(info, sample, dtype, training)
        args = sample.forward_input.args
        outputs = tensors(module(*args))
        cotangents = [torch.randn_like(out) for out in outputs]
        leaves = [*tensors(args), *module.parameters()]
        expected = torch.autograd.grad(outputs, leaves, cotangents)
        for tried, given in itertools.product(
            (args, tree_map(spread, args)), (cotangents, [spread(cotangent) for cotangent in cotangents])
        ):
            again = tensors(module(*tried))
            assert_equal(again, outputs)
            gradients = torch.autograd.grad(again, [*tensors(tried), *module.parameters()], given)
            assert_equal(gradients, expected, atol=1e-4, rtol=0)


def check_gradients(info: ModuleInfo, training: bool, check: Callable[..., bool]) -> None:
    """Checks gradients by everything at once; while training, by the inputs with one parameter at a time too.

    Each parameter alone has programs of its own. Those of second derivatives take minutes to compile: nightly.
    """
    alone = training and (check is gradcheck or os.environ.get("WEFT_SWEEP") == "all")
    for sample in samples(info, torch.float64, training, requires_grad=True):
        module = build(info, sample, torch.float64, training)
        arguments, parameters = sample.forward_input.args, tuple(module.parameters())
        flat, spec = tree_flatten((arguments, parameters))

        def outputs(*flat: Tensor, module: nn.Module = module, spec: Any = spec) -> list[Tensor]:
            arguments, _ = tree_unflatten(flat, spec)  # the parameters are the module's own
            return tensors(module(*arguments))

        assert check(outputs, flat)
        for parameter in parameters:
            parameter.requires_grad_(False)
        for parameter in parameters if alone else ():
            parameter.requires_grad_(True)
            assert check(outputs, flat)
            parameter.requires_grad_(False)


def test_grad(info: ModuleInfo, training: bool) -> None:
    check_gradients(info, training, gradcheck)


@pytest.mark.slow
def test_gradgrad(info: ModuleInfo, training: bool) -> None:
    check_gradients(info, training, gradgradcheck)


@each_dtype
def test_memory_format(info: ModuleInfo, training: bool, dtype: torch.dtype) -> None:
    for sample in samples(info, dtype, training, requires_grad=True):
        module = build(info, sample, dtype, training)
        outputs = tensors(run(module, sample))
        cotangents = [torch.rand_like(out) for out in outputs]
        leaves = [*tensors(sample.forward_input.args), *module.parameters()]
        expected = torch.autograd.grad(outputs, leaves, cotangents)
        for memory_format in (torch.preserve_format, torch.contiguous_format):
            module.to(memory_format=memory_format)
            again = tensors(run(module, sample))
            assert_equal(again, outputs)
            gradients = torch.autograd.grad(again, leaves, cotangents)
            assert_equal(gradients, expected)
            with weft.disabled():
                eager = tensors(run(module, sample))
                theirs = torch.autograd.grad(eager, leaves, cotangents)
            for a, b in zip([*again, *gradients], [*eager, *theirs], strict=True):
                assert a.is_contiguous() and a.stride() == b.stride()


def test_the_training_flag_is_read_where_pytorch_reads_it(info: ModuleInfo, training: bool) -> None:
    for sample in samples(info, torch.float32, training):
        module = build(info, sample, torch.float32, training)
        del module.training
        if info.train_and_eval_differ:
            with pytest.raises(AttributeError, match="'training'"):
                run(module, sample)
        else:
            run(module, sample)


@each_dtype
def test_made_on_the_meta_device(info: ModuleInfo, training: bool, dtype: torch.dtype) -> None:
    for sample in samples(info, dtype, training):
        constructor = sample.constructor_input
        with torch.device("meta"):
            meta = info.module_cls(*constructor.args, **constructor.kwargs)
        real = info.module_cls(*constructor.args, **constructor.kwargs)
        for a, b in zip(meta.parameters(), real.parameters(), strict=True):
            assert a.is_meta and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype


def error_of(action: Callable[[], Any]) -> tuple[type, str] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            action()
        except Exception as error:
            return type(error), str(error)
    return None


@each_dtype
def test_errors(info: ModuleInfo, training: bool, dtype: torch.dtype) -> None:
    found = info.module_error_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
    assert found
    for wrong in found:
        constructor, given = wrong.module_error_input.constructor_input, wrong.module_error_input.forward_input

        def action(constructor: Any = constructor, given: Any = given, wrong: Any = wrong) -> None:
            module = info.module_cls(*constructor.args, **constructor.kwargs)
            if wrong.error_on == ModuleErrorEnum.FORWARD_ERROR:
                module(*given.args, **given.kwargs)

        kind, message = error_of(action)
        assert issubclass(kind, wrong.error_type) and re.search(wrong.error_regex, message)
        with weft.disabled():
            assert error_of(action) == (kind, message)
