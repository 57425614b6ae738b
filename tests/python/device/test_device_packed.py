"""Packed sequences on the device: the CPU's numbers and gradients, in one program for all lengths."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import weft

INPUT, HIDDEN = 5, 7


class Layers(nn.Module):
    """Packs, runs a recurrent module, and pads again."""

    def __init__(self, kind: str, batch_first: bool, enforce_sorted: bool, **options: object):
        super().__init__()
        module = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}[kind]
        self.layer = module(INPUT, HIDDEN, batch_first=batch_first, **options)
        self.ways = {"batch_first": batch_first}
        self.enforce_sorted = enforce_sorted

    def forward(self, x: Tensor, lengths: Tensor) -> list[Tensor]:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=self.enforce_sorted, **self.ways)
        y, last = self.layer(packed)
        padded, found = pad_packed_sequence(y, padding_value=0.5, **self.ways)
        assert found.tolist() == lengths.tolist()
        return [padded, *(last if isinstance(last, tuple) else (last,))]


def both(*arguments: object, **options: object) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    on_cpu = Layers(*arguments, **options)
    on_device = Layers(*arguments, **options).to("weft")
    on_device.load_state_dict(on_cpu.state_dict())
    return on_cpu, on_device


def batch(rng: random.Random, batch_first: bool, enforce_sorted: bool, sequences: int) -> tuple[Tensor, Tensor]:
    lengths = [rng.randint(1, 40) for _ in range(sequences)]
    if enforce_sorted:
        lengths.sort(reverse=True)
    x = torch.randn(max(lengths) + rng.randint(0, 1), sequences, INPUT)
    return (x.transpose(0, 1).contiguous() if batch_first else x), torch.tensor(lengths)


def trained(module: nn.Module, x: Tensor, lengths: Tensor) -> list[Tensor]:
    """Results and gradients."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    results = module(x, lengths)
    sum((y.sin() * (n + 1)).sum() for n, y in enumerate(results)).backward()
    found = [each.detach().contiguous() for each in [*results, x.grad, *(p.grad for p in module.parameters())]]
    weft.sync()
    return [each.cpu() for each in found]


@pytest.mark.parametrize("kind", ["gru", "lstm", "rnn"])
@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
@pytest.mark.parametrize("enforce_sorted", [False, True], ids=["any order", "sorted"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}], ids=["plain", "both ways"])
def test_lengths_at_random(kind, batch_first, enforce_sorted, options):
    on_cpu, on_device = both(kind, batch_first, enforce_sorted, **options)
    rng = random.Random(f"{kind} {batch_first} {enforce_sorted}")
    before = weft.device.stats()
    for step in range(12):
        x, lengths = batch(rng, batch_first, enforce_sorted, 4 if step < 9 else 3)
        expected = trained(on_cpu, x, lengths)
        torch.testing.assert_close(trained(on_device, x.to("weft"), lengths), expected, rtol=1e-4, atol=1e-5)
    after = weft.device.stats()
    # Each step is one batch, and the first batch is not compiled. There is a program for other lengths, another one
    # where the padding is a step longer than the longest sequence, and both again for another number of sequences.
    assert sum(after[name] - before[name] for name in ("plain_batches", "compiled_batches")) == 12
    assert after["records"] - before["records"] <= 6
    assert after["plain_batches"] - before["plain_batches"] <= 3
    assert weft.stats()["fallbacks"] == {}


def test_a_step_is_one_batch():
    """The step asks for the order of the sequences. That is arithmetic of integers, and doesn't cut the step."""
    _, on_device = both("lstm", True, False)
    lengths = torch.tensor([9, 24, 3, 24])
    x = torch.randn(4, 24, INPUT, device="weft")
    for _ in range(3):
        trained(on_device, x, lengths)
    before = weft.device.stats()
    x = x.clone().requires_grad_()
    on_device.zero_grad()
    sum(y.sum() for y in on_device(x, lengths)).backward()
    weft.sync()
    x = torch.randn(4, 24, INPUT, device="weft")
    after = weft.device.stats()
    ran = sum(after[name] - before[name] for name in ("plain_batches", "compiled_batches"))
    assert ran == 1


def test_padded_and_packed_alone():
    data = torch.randn(4, 6, 2, 3)
    sizes = {"total_length": 9, "padding_value": -1.0}
    for batch_first in (False, True):
        x = data if batch_first else data.transpose(0, 1)
        found = []
        for device in ("cpu", "weft"):
            y = x.to(device).requires_grad_()
            packed = pack_padded_sequence(y, torch.tensor([6, 4, 4, 1]), batch_first=batch_first)
            padded, lengths = pad_packed_sequence(packed, batch_first=batch_first, **sizes)
            (first,) = torch.autograd.grad(padded.sin().sum(), y, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), y)
            found.append([each.cpu() for each in (packed.data, packed.batch_sizes, padded, lengths, first, second)])
            found[-1].append(torch.tensor([*padded.stride(), *packed.data.stride()]))
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-6)


def test_integers():
    words = torch.randint(100, (3, 5))
    lengths = torch.tensor([5, 2, 1])
    packed = [pack_padded_sequence(words.to(device), lengths, batch_first=True) for device in ("cpu", "weft")]
    assert packed[1].data.tolist() == packed[0].data.tolist()
    padded = [pad_packed_sequence(each, padding_value=7)[0].tolist() for each in packed]
    assert padded[1] == padded[0]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([2, 3], "sorted in decreasing order"),
        ([3, 0], "greater than 0"),
        ([3, 2, 1], r"Expected `len\(lengths\)` to be equal to batch_size"),
    ],
)
def test_errors_are_pytorchs(lengths, message):
    for device in ("cpu", "weft"):
        with pytest.raises(RuntimeError, match=message):
            pack_padded_sequence(torch.randn(3, 2, 4, device=device), torch.tensor(lengths))
    with pytest.raises(RuntimeError, match="1D CPU int64 tensor"):
        pack_padded_sequence(torch.randn(3, 2, 4, device="weft"), torch.tensor([3, 2], device="weft"))
    packed = PackedSequence(torch.randn(5, 4, device="weft"), torch.tensor([2, 2, 1]))
    with pytest.raises(ValueError, match="total_length to be at least"):
        pad_packed_sequence(packed, total_length=2)


def test_sequences_longer_than_the_data():
    """PyTorch cuts them without a word."""
    data = [
        pack_padded_sequence(torch.arange(6.0, device=device).view(3, 2), torch.tensor([4, 2])).data.tolist()
        for device in ("cpu", "weft")
    ]
    assert data[1] == data[0]


def pending() -> int:
    return weft.device.memory_stats()["pending"]


def test_integers_are_computed_ahead_of_the_rest():
    words = torch.randint(3, (4, 6))
    on_device = words.to("weft")
    y = torch.randn(8, device="weft").sin()
    assert pending() == 1
    lengths = (on_device != 0).sum(1)
    assert lengths.tolist() == (words != 0).sum(1).tolist()
    assert pending() == 1
    assert (lengths + 1).cpu().tolist() == ((words != 0).sum(1) + 1).tolist()
    assert pending() == 1
    # A value that is computed from floats runs with all that is pending, and so does a large value.
    assert bool((y > 0).any()) == bool((y.cpu() > 0).any())
    assert pending() == 0
    y = y.cos()
    assert int(torch.zeros(1 << 13, dtype=torch.long, device="weft").add(1).sum()) == 1 << 13
    assert pending() == 0


def test_an_error_ahead_of_the_rest():
    counts = torch.ones(3, dtype=torch.long).to("weft")
    y = torch.randn(8, device="weft").sin()
    wrong = torch.arange(4, device="weft")[torch.tensor([7], device="weft")]
    with pytest.raises(IndexError, match="index"):
        wrong.tolist()
    assert pending() == 1
    one = torch.ones(1, dtype=torch.long, device="weft")
    with pytest.raises((RuntimeError, IndexError), match="index"):
        counts.index_add_(0, one * 5, one).tolist()
    assert pending() == 1
    assert counts.tolist() == [1, 1, 1]  # as after an error in eager mode
    assert y.cpu().isfinite().all()
