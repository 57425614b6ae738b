"""nn.RNN, nn.GRU, nn.LSTM and their cells in random configurations, against PyTorch's kernels.

The judge is PyTorch in float64: neither side's rounding is blamed for the other's. A result of Weft's may be as far
from the judge's as PyTorch's own is, times a few, plus some units in the last place of the tensor's largest element; or
a few units of the largest element of all results, or of all gradients: what is left where large terms cancel.
What PyTorch's results look like (sizes, dtype, strides, whether they have a gradient) is what ours look like.

WEFT_RANDOM_MODULES says how many configurations are tried, 200 if it says nothing; `make nightly` tries 2,000. A
failure shows the configuration as Python; `check_config(<that>)` runs it again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import warnings
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from torch.utils._pytree import tree_leaves, tree_map_only

import weft

EXAMPLES = int(os.environ.get("WEFT_RANDOM_MODULES", "200"))
KINDS = ("GRU", "LSTM", "RNN tanh", "RNN relu", "GRUCell", "LSTMCell", "RNNCell tanh", "RNNCell relu")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
#: Units in the last place that Weft may be off beyond a few times PyTorch's own error: of a tensor's largest element,
#: and of that of all tensors.
ALLOWED_ULP = {torch.float32: 64, torch.float64: 64, torch.bfloat16: 6, torch.float16: 6}
ALLOWED_ULP_OF_ALL = {torch.float32: 4, torch.float64: 4, torch.bfloat16: 1, torch.float16: 1}

#: The largest errors met, of Weft and of PyTorch, by dtype and separately for results and gradients. In units in the
#: last place of the largest element of all results, or of all gradients. conftest.py prints them in the end.
worst: dict[tuple[str, str], tuple[float, float]] = {}


@dataclasses.dataclass(frozen=True)
class Config:
    """A module, and how it is called."""

    kind: str
    dtype: torch.dtype = torch.float32
    input_size: int = 5
    hidden: int = 7
    layers: int = 1
    bias: bool = True
    batch_first: bool = False
    dropout: float = 0.0
    training: bool = True
    bidirectional: bool = False
    proj_size: int = 0
    steps: int = 4
    batch: int | None = 3  #: None: an input without a batch dim
    lengths: tuple[int, ...] = ()  #: of packed sequences; `steps` and `batch` are then theirs
    sorted: bool = True  #: whether the caller has sorted them
    with_state: bool = True
    layout: str = "contiguous"  #: of the input and the states
    autocast: torch.dtype | None = None
    mode: str = "grad"  #: or no_grad, inference_mode
    wanted: tuple[int, ...] | None = None  #: the indices of leaves that want a gradient, modulo their number; None: all
    results: int = 0  #: the results in the loss: all, only the first, only the last
    seed: int = 0

    @property
    def is_step(self) -> bool:
        return "Cell" in self.kind

    @property
    def is_lstm(self) -> bool:
        return self.kind.startswith("LSTM")


@st.composite
def configs(draw: st.DrawFn) -> Config:
    size = st.sampled_from((1, 2, 3, 5, 8, 16, 17, 31, 48))
    kind = draw(st.sampled_from(KINDS[:4] * 2 + KINDS[4:]))
    step, lstm = "Cell" in kind, kind.startswith("LSTM")
    dtype = draw(st.sampled_from((*DTYPES, torch.float32, torch.float64)))
    hidden = draw(size)
    layers = 1 if step else draw(st.sampled_from((1, 1, 2, 3)))
    shape = draw(st.sampled_from(("batch", "batch", "batch", "unbatched", "packed")))
    steps, batch = draw(st.sampled_from((1, 2, 3, 5, 12, 40))), draw(st.sampled_from((0, 1, 2, 3, 4, 9, 17)))
    lengths, is_sorted = (), draw(st.booleans())
    if shape == "packed" and not step:
        lengths = tuple(draw(st.lists(st.integers(1, 13), min_size=1, max_size=9)))
        lengths = tuple(sorted(lengths, reverse=True)) if is_sorted else lengths
    return Config(
        kind=kind,
        dtype=dtype,
        input_size=draw(size),
        hidden=hidden,
        layers=layers,
        bias=draw(st.sampled_from((True, True, False))),
        batch_first=not step and draw(st.booleans()),
        dropout=draw(st.sampled_from((0.0, 0.0, 0.3, 1.0))) if layers > 1 else 0.0,
        training=draw(st.sampled_from((True, True, False))),
        bidirectional=not step and draw(st.booleans()),
        proj_size=draw(st.integers(1, hidden - 1)) if lstm and not step and hidden > 1 and draw(st.booleans()) else 0,
        steps=max(lengths) if lengths else steps,
        batch=len(lengths) if lengths else None if shape == "unbatched" else batch,
        lengths=lengths,
        sorted=is_sorted,
        with_state=draw(st.booleans()),
        layout=draw(st.sampled_from(("contiguous", "contiguous", "gaps", "transposed", "expanded"))),
        autocast=draw(st.sampled_from((None, None, None, torch.bfloat16, torch.float16))),
        mode=draw(st.sampled_from(("grad", "grad", "grad", "no_grad", "inference_mode"))),
        wanted=tuple(draw(st.lists(st.integers(0, 20), max_size=4))) if draw(st.booleans()) else None,
        results=draw(st.integers(0, 2)),
        seed=draw(st.integers(0, 99)),
    )


class Case:
    """A configuration's module and arguments."""

    def __init__(self, config: Config) -> None:
        self.config = config
        torch.manual_seed(config.seed)
        self.module = make_module(config).train(config.training)
        self.arguments = make_arguments(config)
        leaves = [*tree_leaves(self.arguments), *self.module.parameters()]
        self.leaves = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        wanted = None if config.wanted is None else {index % len(self.leaves) for index in config.wanted}
        for index, leaf in enumerate(self.leaves):
            leaf.requires_grad_(wanted is None or index in wanted)

    def run(self, module: nn.Module, arguments: Any, autocast: torch.dtype | None) -> list[Tensor]:
        """The results, then the gradients that are wanted."""
        mode = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
        torch.manual_seed(self.config.seed + 1)
        casts = torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext()
        with mode[self.config.mode](), casts:
            outputs = [leaf for leaf in tree_leaves(module(*arguments)) if isinstance(leaf, Tensor)]
        return outputs

    def gradients(self, outputs: list[Tensor], leaves: list[Tensor]) -> list[Tensor]:
        leaves = [leaf for leaf in leaves if leaf.requires_grad]
        pairs = [(out, weight) for out, weight in zip(outputs, self.weights(outputs), strict=True) if out.requires_grad]
        pairs = (pairs, pairs[:1], pairs[-1:])[self.config.results]
        if not leaves or not pairs:
            return []
        found = torch.autograd.grad([o for o, _ in pairs], leaves, [w for _, w in pairs], allow_unused=True)
        # A leaf that no result depends on has none; zeros stand for it on both sides.
        return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]

    def weights(self, outputs: list[Tensor]) -> list[Tensor]:
        generator = torch.Generator().manual_seed(self.config.seed + 2)
        return [torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype) for out in outputs]


def make_module(config: Config) -> nn.Module:
    name, _, nonlinearity = config.kind.partition(" ")
    options: dict[str, Any] = {"bias": config.bias, "dtype": config.dtype}
    if nonlinearity:
        options["nonlinearity"] = nonlinearity
    if not config.is_step:
        options |= dict(num_layers=config.layers, batch_first=config.batch_first, dropout=config.dropout)
        options |= dict(bidirectional=config.bidirectional)
    if config.proj_size:
        options["proj_size"] = config.proj_size
    return getattr(nn, name)(config.input_size, config.hidden, **options)


def make_arguments(config: Config) -> tuple[Any, ...]:
    batch = () if config.batch is None else (config.batch,)
    steps = () if config.is_step else (config.steps,)
    outer = (*batch, *steps) if config.batch_first else (*steps, *batch)
    x: Any = laid_out(config, (*outer, config.input_size))
    if config.lengths:
        x = pack_padded_sequence(x, list(config.lengths), config.batch_first, enforce_sorted=config.sorted)
        x = PackedSequence(x.data.detach(), *x[1:])
    if not config.with_state:
        return (x,)
    stack = () if config.is_step else (config.layers * (2 if config.bidirectional else 1),)
    h = laid_out(config, (*stack, *batch, config.proj_size or config.hidden))
    return (x, (h, laid_out(config, (*stack, *batch, config.hidden)))) if config.is_lstm else (x, h)


def laid_out(config: Config, shape: tuple[int, ...]) -> Tensor:
    """Random numbers of that shape in the configuration's layout, detached."""
    if config.layout == "gaps":
        return torch.randn(*shape[:-1], 2 * shape[-1], dtype=config.dtype)[..., 1::2]
    if config.layout == "transposed":
        return torch.randn(*reversed(shape), dtype=config.dtype).permute(*reversed(range(len(shape))))
    if config.layout == "expanded" and shape[0] > 0:
        return torch.randn(1, *shape[1:], dtype=config.dtype).expand(shape)
    return torch.randn(shape, dtype=config.dtype)


def largest(tensors: list[Tensor]) -> float:
    return max((t.detach().abs().max().item() for t in tensors if t.numel() and t.is_floating_point()), default=0.0)


def error_in_ulp(found: Tensor, judge: Tensor, scale: float) -> float:
    """The largest error in units in the last place that a number of the size `scale` has."""
    if found.numel() == 0:
        return 0.0
    found, judge, unit = found.double(), judge.double(), torch.finfo(found.dtype).eps
    difference = (found - judge).abs().max().item()
    if math.isnan(difference) or not math.isfinite(scale):
        return math.nan
    return difference / (unit * 2.0 ** math.floor(math.log2(max(scale, 2.0**-20))))


def in_float64(case: Case) -> tuple[nn.Module, Any, list[Tensor]]:
    """The same configuration in float64: module, arguments, leaves."""
    fresh: dict[int, Tensor] = {}

    def convert(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        if id(tensor) not in fresh:
            fresh[id(tensor)] = tensor.detach().double().requires_grad_(tensor.requires_grad)
        return fresh[id(tensor)]

    arguments = tree_map_only(Tensor, convert, case.arguments)
    module = make_module(dataclasses.replace(case.config, dtype=torch.float64)).train(case.config.training)
    for ours, theirs in zip(module.parameters(), case.module.parameters(), strict=True):
        ours.data.copy_(theirs.data)
        ours.requires_grad_(theirs.requires_grad)
        fresh[id(theirs)] = ours
    return module, arguments, [fresh[id(leaf)] for leaf in case.leaves]


def attempt(case: Case) -> tuple[list[Tensor], list[Tensor]] | tuple[type, str]:
    try:
        outputs = case.run(case.module, case.arguments, case.config.autocast)
        return outputs, case.gradients(outputs, case.leaves)
    except Exception as error:
        return type(error), str(error)


def check_config(config: Config) -> None:
    """Results and gradients are PyTorch's, or both refuse the configuration in the same words."""
    case = Case(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with weft.disabled():
            theirs = attempt(case)
        weft.reset_stats()
        ours = attempt(case)
        if isinstance(theirs[0], type):  # PyTorch refuses it, or lacks a kernel for the dtype
            assert not isinstance(ours[0], type) or ours == theirs, f"{ours} instead of {theirs}"
            return
        assert not isinstance(ours[0], type), ours
        assert not weft.stats()["fallbacks"]
        module, arguments, leaves = in_float64(case)
        with weft.disabled():
            judge = case.run(module, arguments, None)
            judge_gradients = case.gradients(judge, leaves)
    compare(config, "results", ours[0], theirs[0], judge)
    compare(config, "gradients", ours[1], theirs[1], judge_gradients)


def looks_of(tensor: Tensor, what: str, config: Config) -> tuple[Any, ...]:
    """Everything about the results but the numbers.

    The strides of gradients are no promise, nor are those of a single step from a transposed state, which come out
    of elementwise operations in PyTorch.
    """
    promised = what == "results" and not (config.is_step and config.layout != "contiguous")
    strides = tensor.stride() if promised else ()
    return tensor.shape, tensor.dtype, strides, tensor.requires_grad, tensor.is_inference()


def compare(config: Config, what: str, ours: list[Tensor], theirs: list[Tensor], judge: list[Tensor]) -> None:
    assert len(ours) == len(theirs) == len(judge)
    for index, (a, b, exact) in enumerate(zip(ours, theirs, judge, strict=True)):
        looks, expected = looks_of(a, what, config), looks_of(b, what, config)
        assert looks == expected, f"{what} {index}: {looks} instead of {expected}"
        if not a.is_floating_point():  # a packed sequence's batch sizes and indices
            assert torch.equal(a, b)
            continue
        # Numbers that were computed in a narrower dtype than their own are judged by the narrower dtype.
        dtype = min((a.dtype, config.dtype, config.autocast or a.dtype), key=lambda dtype: -torch.finfo(dtype).eps)
        factor = torch.finfo(a.dtype).eps / torch.finfo(dtype).eps
        mine, pytorchs = (error_in_ulp(found, exact, largest([exact])) * factor for found in (a, b))
        of_all = [error_in_ulp(found, exact, largest(judge)) * factor for found in (a, b)]
        if math.isnan(pytorchs):
            torch.testing.assert_close(a.isfinite(), b.isfinite())
            continue
        key = (str(dtype).removeprefix("torch.") + (" autocast" if config.autocast else ""), what)
        worst[key] = tuple(map(max, zip(worst.get(key, (0.0, 0.0)), of_all, strict=True)))
        allowed = ALLOWED_ULP[dtype]
        if "relu" in config.kind and what == "gradients" and dtype in (torch.bfloat16, torch.float16):
            allowed *= 16  # a sum that 16 bits cannot tell from 0 switches a unit on or off
        good = mine <= 4 * pytorchs + allowed or of_all[0] <= ALLOWED_ULP_OF_ALL[dtype]
        assert good, f"{what} {index}: {mine:.1f} ulp, PyTorch's {pytorchs:.1f}"


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="WEFT_RANDOM_MODULES" not in os.environ,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    database=None,
)
@given(configs())
def test_random_configurations(config: Config) -> None:
    check_config(config)


def test_the_judge_notices_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that cannot fail is none: one element is wrong by a thousand ulp."""
    monkeypatch.setitem(globals(), "worst", {})
    case = Case(Config("GRU"))
    with weft.disabled():
        ours, theirs, judge = (case.run(case.module, case.arguments, None) for _ in range(3))
    wrong = [ours[0].detach().clone().requires_grad_(), ours[1]]
    with torch.no_grad():
        wrong[0][0, 0, 0] *= 1 + 1000 * torch.finfo(torch.float32).eps
        wrong[0][0, 0, 0] += 1000 * torch.finfo(torch.float32).eps
    compare(case.config, "results", ours, theirs, judge)
    with pytest.raises(AssertionError, match="ulp"):
        compare(case.config, "results", wrong, theirs, judge)
    with pytest.raises(AssertionError, match="instead of"):
        compare(case.config, "results", [ours[0].transpose(0, 1), ours[1]], theirs, judge)
