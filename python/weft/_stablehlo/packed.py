"""Packed sequences of known lengths, written as padded ones, since the text is for one example's sizes.

StableHLO's sizes are numbers, so a step can't have fewer rows than the one before. So PyTorch's recurrent layers over a
PackedSequence become scans over padded steps, in which rows whose sequence has ended keep their state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

from weft import _C
from weft._base.errors import UnsupportedError
from weft._base.torch_private import VF, pytree
from weft._capture.runs import under_way
from weft._control.scan import scan

#: Operations that may be done to known lengths and batch sizes without becoming part of the program: those of packing.
_ON_LENGTHS = (
    torch.sort, torch.as_tensor, Tensor.sort, Tensor.cpu, Tensor.to, Tensor.__getitem__, Tensor.__int__, Tensor.item,
    Tensor.tolist,
)  # fmt: skip
#: Further operations of PyTorch's packing functions on such numbers, on tensors of their own.
_IN_PACKING = (torch.empty_like, torch.arange, Tensor.scatter_)
_KINDS = {VF.gru: "gru", VF.lstm: "lstm", VF.rnn_tanh: "tanh", VF.rnn_relu: "relu"}


def unpacked(function: Callable[..., Any], example: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function that takes only the data of packed arguments, and this data: the lengths of sequences become part of
    the function. For a packed result it returns the data, too."""

    def pack(argument: Any, data: Any) -> Any:
        return argument._replace(data=data) if isinstance(argument, PackedSequence) else data

    def of_data(*arguments: Any) -> Any:
        with _Padding():
            results = function(*map(pack, example, arguments))
        return pytree.tree_map(_data_of, results, is_leaf=_is_packed)

    return of_data, tuple(map(_data_of, example))


def _is_packed(value: Any) -> bool:
    return isinstance(value, PackedSequence)


def _data_of(value: Any) -> Any:
    return value.data if isinstance(value, PackedSequence) else value


class _Padding(TorchFunctionMode):
    """Has recurrent layers and the packing functions work on padded steps, within a run that is recorded."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _KINDS and _is_known(args[1]):
            return _recurrent(_KINDS[func], _Steps(_aside(args[1].tolist)), args[0], *args[2:9])
        if func is VF._pack_padded_sequence and _is_known(args[1]):
            return _pack(*args)
        if func is VF._pad_packed_sequence and _is_known(args[1]):
            return _pad(*args)
        is_packing = func in _IN_PACKING and sys._getframe(1).f_code.co_filename == rnn.__file__
        if (is_packing or (func in _ON_LENGTHS and args)) and all(map(_is_known, _tensors(args))):
            return _aside(lambda: func(*args, **kwargs))
        return func(*args, **kwargs)


def _tensors(args: tuple[Any, ...]) -> list[Tensor]:
    return [each for each in pytree.tree_leaves(args) if isinstance(each, Tensor)]


def _is_known(value: Any) -> bool:
    """Whether the tensors hold known numbers, from outside or computed from such: none belongs to the recording."""
    is_number = isinstance(value, Tensor) and value.dtype == torch.int64 and value.dim() <= 1 and value.is_cpu
    return is_number and not _C.is_recorded(value)


def _aside(make: Callable[[], Any]) -> Any:
    """Computes with known numbers, outside of the recording."""
    recording = under_way.run.recording
    recording.leave()
    try:
        return make()
    finally:
        recording.enter()


class _Steps:
    """Which rows of a padded [T, B] the rows of packed data are, given the number of rows of each step."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.steps, self.batch = len(sizes), sizes[0]
        begins = [sum(sizes[:t]) for t in range(self.steps)]
        padded, packed, valid = [], [], []
        for t, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
            # A row whose sequence has ended reads another row of the step; nobody uses the result.
            padded += [begin + min(b, size - 1) for b in range(self.batch)]
            packed += [t * self.batch + b for b in range(size)]
            valid += [b < size for b in range(self.batch)]

        def tensors() -> tuple[Tensor, ...]:
            return torch.tensor(padded), torch.tensor(packed), torch.tensor(valid).view(self.steps, self.batch)

        self.padded, self.packed, self.valid = _aside(tensors)

    def pad(self, data: Tensor) -> Tensor:
        """[N, ...] -> [T, B, ...]."""
        return data.index_select(0, self.padded).unflatten(0, (self.steps, self.batch))

    def pack(self, steps: Tensor) -> Tensor:
        """[T, B, ...] -> [N, ...]."""
        return steps.flatten(0, 1).index_select(0, self.packed)


def _pack(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """`_VF._pack_padded_sequence`: data and batch sizes. PyTorch's own says which lengths are wrong."""
    rows = input.shape[0 if batch_first else 1]
    _, sizes = _aside(lambda: VF._pack_padded_sequence(torch.zeros(max(lengths.tolist()), rows), lengths, False))
    steps = _Steps(_aside(sizes.tolist))
    if steps.steps > input.shape[1 if batch_first else 0]:
        raise RuntimeError(f"a length is {steps.steps}, but the sequences have {input.shape[int(batch_first)]} steps")
    return steps.pack((input.transpose(0, 1) if batch_first else input)[: steps.steps]), sizes


def _pad(data: Tensor, batch_sizes: Tensor, batch_first: bool, value: float, total: int) -> tuple[Tensor, Tensor]:
    """`_VF._pad_packed_sequence`: padded sequences and their lengths."""
    sizes = _aside(batch_sizes.tolist)
    steps = _Steps(sizes)
    out = steps.pad(data)
    out = torch.where(steps.valid.view(*steps.valid.shape, *[1] * (out.dim() - 2)), out, value)
    if total > steps.steps:
        out = torch.cat([out, out.new_full((total - steps.steps, *out.shape[1:]), value)])
    lengths = _aside(lambda: torch.tensor([sum(size > b for size in sizes) for b in range(sizes[0])]))
    return out.transpose(0, 1) if batch_first else out, lengths


def _recurrent(
    kind: str, steps: _Steps, data: Tensor, state: Any, weights: list[Tensor], has_biases: bool, layers: int,
    dropout: float, train: bool, bidirectional: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """`_VF.gru` and its kin on packed data: the output's data and the last states."""
    if train and dropout > 0 and layers > 1:
        raise UnsupportedError(
            "a recurrent layer with dropout on a PackedSequence: call eval(), or set its dropout to 0"
        )
    first = tuple(state) if kind == "lstm" else (state,)
    given = iter(weights)
    x, lasts = steps.pad(data), []
    for layer in range(layers):
        ys = []
        for way in range(1 + bidirectional):
            begin = tuple(each[layer * (1 + bidirectional) + way] for each in first)
            projects = kind == "lstm" and first[0].shape[-1] != first[1].shape[-1]
            last, y = _direction(kind, steps, x, begin, _weights(given, has_biases, projects), way == 1)
            lasts.append(last)
            ys.append(y)
        x = torch.cat(ys, -1) if bidirectional else ys[0]
    return steps.pack(x), *(torch.stack(each) for each in zip(*lasts, strict=True))


def _weights(given: Iterator[Tensor], has_biases: bool, projects: bool) -> list[Tensor | None]:
    """The weights of one direction: w_ih, w_hh, b_ih, b_hh, w_hr."""
    taken = [next(given) for _ in range(2 + 2 * has_biases)]
    biases = taken[2:] if has_biases else [None, None]
    return [*taken[:2], *biases, next(given) if projects else None]


def _direction(
    kind: str, steps: _Steps, x: Tensor, begin: tuple[Tensor, ...], weights: list[Tensor | None], reverse: bool
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Runs one layer in one direction: the last states [B, H], and y [T, B, H]."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    assert w_ih is not None and w_hh is not None

    def step(carry: tuple[Tensor, ...], xs: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
        new = _cell(kind, carry, xs[0], nn.functional.linear(carry[0], w_hh, b_hh), w_hr)
        kept = tuple(torch.where(xs[1][:, None], each, old) for each, old in zip(new, carry, strict=True))
        return kept, kept[0]

    return scan(step, begin, (nn.functional.linear(x, w_ih, b_ih), steps.valid), reverse=reverse)


def _cell(kind: str, state: tuple[Tensor, ...], i: Tensor, h: Tensor, w_hr: Tensor | None) -> tuple[Tensor, ...]:
    """The next state, as the documentation of nn.GRU, nn.LSTM and nn.RNN has it; `i` and `h` are the products."""
    if kind == "gru":
        (i_r, i_z, i_n), (h_r, h_z, h_n) = i.chunk(3, -1), h.chunk(3, -1)
        z, n = torch.sigmoid(i_z + h_z), torch.tanh(i_n + torch.sigmoid(i_r + h_r) * h_n)
        return ((1 - z) * n + z * state[0],)
    if kind == "lstm":
        i_gate, f, g, o = (i + h).chunk(4, -1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i_gate) * torch.tanh(g)
        out = torch.sigmoid(o) * torch.tanh(c)
        return out if w_hr is None else nn.functional.linear(out, w_hr), c
    return (torch.tanh(i + h) if kind == "tanh" else torch.relu(i + h),)
