"""Views, movement, indexing and changes in place in a step, held to eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as fn
from step_checks import assert_step, integers, numbers

from weft._capture.trace import trace

MOVEMENT = {
    "split": lambda x: x.split(2, -1),
    "split sizes": lambda x: x.split([1, 3, 2], -1),
    "chunk": lambda x: x.chunk(3, -1),
    "unbind": lambda x: (*x.unbind(1), x.unbind(-1)[2]),
    "tensor_split": lambda x: x.tensor_split(4, -1),
    "narrow": lambda x: (x.narrow(-1, 1, 3), x[..., 2:], x[..., ::2], x[..., 1::3], x[:, -1], x[..., None, 2]),
    "views": lambda x: (x.flatten(1), x.unflatten(-1, (2, 3)), x.unsqueeze(0), x.reshape(-1), x.view_as(x), x.mT),
    "permute": lambda x: (x.permute(2, 0, 1), x.transpose(0, 1), x.movedim(0, -1), x.swapaxes(0, 2)),
    "cat": lambda x: (torch.cat([x, x * 2, x[..., :1]], -1), torch.cat([x, x], 1), torch.stack([x, x + 1], 1)),
    "stacks": lambda x: (torch.hstack([x, x]), torch.dstack([x, x]), torch.column_stack([x, x])),
    "flip": lambda x: (x.flip(-1), x.flip(0, 1), x.fliplr(), x.rot90(1, (1, 2))),
    "roll": lambda x: (x.roll(1, -1), x.roll((2, -1), (1, 2))),
    "repeat": lambda x: (x.repeat(1, 2, 3), x.tile(2), x.repeat_interleave(3, 1), x.expand(2, *x.shape)),
    "pad": lambda x: (fn.pad(x, (1, 2)), fn.pad(x, (0, 1, 2, 0), value=3.0), fn.pad(x, (-1, 1))),
    "pad by others": lambda x: (fn.pad(x, (1, 2), "replicate"), fn.pad(x, (2, 1), "reflect")),
    "diagonal": lambda x: (
        x.diagonal(0, 1, 2),
        x.diagonal(1, 1, 2),
        x.diagonal(-1, 2, 1),
        x[0].diagonal(),
        x[0, :, :3].trace(),
    ),
    "diag_embed": lambda x: (x.diag_embed(), x[0].diag_embed(1), torch.diag(x[0, 0]), torch.diag(x[0], 1)),
    "triangles": lambda x: (x.tril(), x.triu(1), x.tril(-1)),
    "eye": lambda x: x[..., :3] @ torch.eye(3, dtype=x.dtype) + torch.arange(3) + torch.linspace(0, 1, 3),
    "unfold": lambda x: (x.unfold(-1, 3, 2), x.unfold(1, 2, 1)),
    "fills": lambda x: (
        torch.zeros_like(x),
        torch.full((2,), 3.5),
        x.new_zeros(2),
        x.new_full((3,), 2),
        torch.ones(2) * x[0, 0, 0],
    ),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, 1], indexing="ij"),
    "broadcast": lambda x: (torch.broadcast_to(x[:1], x.shape), *torch.broadcast_tensors(x[:1, :, :1], x)),
    "block_diag": lambda x: torch.block_diag(x[0], x[1]),
    "cartesian": lambda x: torch.kron(x[0], x[0, :2]),
    "pixel_shuffle": lambda x: fn.pixel_shuffle(x.reshape(-1, 4, 3, 1), 2),
    "glu": lambda x: (fn.glu(x), fn.glu(x.repeat(1, 2, 1), 1)),
    "item of each": lambda x: x[0, 0, 0] + x[-1, -1, -1],
}


@pytest.mark.parametrize("name", MOVEMENT)
def test_movement(name):
    f = MOVEMENT[name]
    shapes = [(4, 3, 6), (2, 5, 6)] if name != "diagonal" else [(4, 3, 6), (2, 5, 5)]
    for shape in shapes:
        assert_step(f, numbers(shape))
    assert_step(f, numbers((6, 3, 4)).transpose(0, 2))


INDEXING = {
    "gather": lambda x, i: (x.gather(1, i), x.gather(0, i.clamp(max=2)), torch.take_along_dim(x, i, 1)),
    "index_select": lambda x, i: (x.index_select(1, i[0]), x.index_select(0, i[:, 0].clamp(max=2))),
    "index": lambda x, i: (
        x[i[:, 0].clamp(max=2)],
        x[:, i[0]],
        x[torch.arange(3), i[:, 0]],
        x[:, -i],
        x[i[0].clamp(max=2), i[1]],
    ),
    "embedding": lambda x, i: (fn.embedding(i.clamp(max=2), x), fn.embedding(i[0].clamp(max=2), x)),
    "take": lambda x, i: x.take(i * 2),
    "scatter": lambda x, i: (
        x.scatter(1, i[:, :1], x[:, 2:3] * 2),
        x.scatter(1, i, 0.5),
        x.scatter(0, i[:1, 1:3], x[:1, 3:]),
    ),
    "scatter_add": lambda x, i: (x.scatter_add(1, i, x[:, :4] * 3), x.scatter_add(0, i.clamp(max=2), x[:, 1:])),
    "index_add": lambda x, i: (x.index_add(1, i[0], x[:, :4] * 2), x.index_add(0, i[:, 0].clamp(max=2), x, alpha=0.5)),
    "index_copy": lambda x, i: (
        x.index_copy(1, torch.tensor([4, 0]), x[:, :2] * 2),
        x.index_fill(0, torch.tensor([1, 0]), 3),
    ),
    "index_put": lambda x, i: (
        x.index_put((torch.tensor([0, 2]),), x[:2] * 2),
        x.index_put((i[:, 0].clamp(max=2),), x, accumulate=True),
        x.index_put((torch.arange(3), i[:, 0]), x[:, 0] * 2),
    ),
    "one_hot": lambda x, i: (
        fn.one_hot(i, 5) * x[:, None],
        fn.one_hot(i[0], 7).sum(0),
        fn.nll_loss(x.log_softmax(1), i[:, 0]),
    ),
    "cross_entropy": lambda x, i: (
        fn.cross_entropy(x, i[:, 0]),
        fn.cross_entropy(x, i[:, 0], reduction="none", label_smoothing=0.1),
    ),
    "scatters": lambda x, i: (
        torch.select_scatter(x, x[:, 0] * 2, 1, 3),
        torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3),
        torch.diagonal_scatter(x, x[:, 0] * 2),
        x.masked_fill(x > 0, 1),
    ),
    "argmax then gather": lambda x, i: x.gather(1, x.argmax(1, keepdim=True)).squeeze(1) + x.max(1).values,
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name):
    x, i = numbers((3, 5)), torch.tensor([[4, 0, 1, 2], [2, 2, 2, 3], [0, 1, 4, 4]])
    assert_step(INDEXING[name], x, i)
    assert_step(INDEXING[name], x.float(), i)
    assert_step(INDEXING[name], numbers((5, 3)).t(), i)


def test_an_index_out_of_range_is_an_error():
    x = numbers((3, 5))
    for f in [lambda x, i: x.gather(1, i), lambda x, i: x[:, i[0]], lambda x, i: x[i[0] * 0, i[0]]]:
        program = trace(f, (x, torch.tensor([[1]])), what="the step").program.text
        torch.ops.weft.call(program, [x, torch.tensor([[4]])])
        for bad in (5, -6):
            with pytest.raises(RuntimeError, match="out of bounds"):
                torch.ops.weft.call(program, [x, torch.tensor([[bad]])])
    i = integers((3,))
    program = trace(lambda i, j: i // j, (i, i * 0 + 1), what="the step").program.text
    with pytest.raises(RuntimeError, match="integer division by zero"):
        torch.ops.weft.call(program, [i, torch.tensor([1, 0, 1])])


IN_PLACE = {
    "row": lambda x: _with(x, lambda y: y.__setitem__(1, x[0] * 2)),
    "column": lambda x: _with(x, lambda y: y.__setitem__((slice(None), 2), x[:, 0] * 2)),
    "range": lambda x: _with(x, lambda y: y[:, 1:3].copy_(x[:, :2] * 2)),
    "mask": lambda x: _with(x, lambda y: y.__setitem__(x > 0, 0.0)),
    "rows by mask": lambda x: _with(x, lambda y: y.__setitem__(x[:, 0] > 0, 0.0)),
    "index": lambda x: _with(x, lambda y: y.__setitem__(torch.tensor([2, 0]), x[:2] * 2)),
    "arithmetic": lambda x: _with(x, lambda y: y.mul_(2).add_(x).clamp_(min=0).tanh_()),
    "part": lambda x: _with(x, lambda y: y[:, 1:].mul_(x[:, 1:])),
    "masked_fill": lambda x: _with(x, lambda y: y.masked_fill_(x > 0, -1)),
    "zero": lambda x: _with(x, lambda y: y[0].zero_()),
}


def _with(x, change):
    y = x.clone()
    change(y)
    return y * 3


@pytest.mark.parametrize("name", IN_PLACE)
def test_changes_in_place(name):
    assert_step(IN_PLACE[name], numbers((4, 5)))
