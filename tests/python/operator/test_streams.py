"""Stacks stored past the caches (WEFT_STREAM, runtime/memory/streams.h) have the same bits as others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

SCRIPT = """
import sys, torch, weft
from torch import nn

def results():
    torch.manual_seed(1)
    for kind in ("GRU", "LSTM", "RNN"):
        module = getattr(nn, kind)(24, 64, num_layers=2, bidirectional=True)
        x = torch.randn(40, 5, 24, requires_grad=True)
        packed = nn.utils.rnn.pack_sequence([torch.randn(n, 24) for n in (9, 30, 12)], enforce_sorted=False)
        for xs in (x, packed):
            module.zero_grad()
            ys, states = module(xs)
            ys = ys if xs is x else ys.data
            ys.square().sum().backward()
            yield from (ys.detach(), *(weight.grad.clone() for weight in module.parameters()))
        yield x.grad
    weight, xs = torch.randn(48, 48) / 7, torch.randn(30, 7, 48).double().requires_grad_()
    def step(h, x):
        gate = torch.sigmoid(x @ weight.double())
        h = gate * h + (1 - gate) * torch.tanh(x)
        return h, (h, gate, h.sum(-1))
    h, ys = weft.scan(step, torch.zeros(7, 48).double(), xs)
    sum(y.square().sum() for y in ys).backward()
    yield from (h, *ys, xs.grad)

found = []
for threads in (1, 2, 7):
    torch.set_num_threads(threads)
    found.append([each.detach() for each in results()])
for other in found[1:]:
    assert all(map(torch.equal, found[0], other))
torch.save(found[0], sys.argv[1])
"""


def test_the_bits_are_the_same(run_warm_python: Callable[..., str], tmp_path: Path) -> None:
    """The same code stores either way."""
    results = []
    for stream in ("0", "1"):
        script = f"import sys; sys.argv = ['', {str(tmp_path / stream)!r}]\n{SCRIPT}"
        run_warm_python(script, WEFT_STREAM=stream, WEFT_SHARE_ALL="1", WEFT_DUMP=str(tmp_path / "dump"))
        results.append(torch.load(tmp_path / stream))
    through, past = results
    assert len(through) == len(past) and all(map(torch.equal, through, past))
    codes = {path.name: path.read_text() for path in (tmp_path / "dump").glob("*.ll") if ".opt." not in path.name}
    for kind in ("gru-", "lstm-", "rnn_tanh-", "scan-"):
        assert any(name.startswith(kind) and "!nontemporal" in code for name, code in codes.items()), kind
