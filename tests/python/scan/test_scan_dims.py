"""Arguments of weft.scan and its kin as in jax.lax (length and reverse by position) and in torch's scan (`dim`)."""

from __future__ import annotations

import pytest
import torch

import weft

XS = {"x": torch.randn(3, 5, 4), "mask": torch.rand(3, 5) < 0.5}


def step(h, x):
    h = torch.where(x["mask"].unsqueeze(-1), h + x["x"].sin(), h)
    return h, (h.cos(), h.sum(-1), None)


def outer(scan, dim=0, reverse=False):
    xs = XS if dim else {name: x.transpose(0, 1) for name, x in XS.items()}
    h, (a, b, none) = scan(step, torch.zeros(3, 4), xs, None, reverse, dim=dim)
    assert none is None
    return (h, a, b) if dim else (h, a.transpose(0, 1), b.transpose(0, 1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("scan", [weft.scan, weft.checkpoint_scan])
def test_batch_first(scan, reverse):
    expected = outer(scan, reverse=reverse)
    ours = outer(scan, 1, reverse)
    assert ours[1].shape == (3, 5, 4) and ours[2].shape == (3, 5)
    assert all(map(torch.equal, ours, expected))
    with weft.disabled():
        torch.testing.assert_close(outer(scan, 1, reverse), expected)
    compiled = torch.compile(lambda: outer(scan, 1, reverse), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(), expected)


def test_dims_of_a_y_that_has_too_few_and_from_the_end():
    x = torch.randn(2, 3, 5)
    h, (sums, whole) = weft.scan(lambda h, x: (h + x, (x.sum(), x)), torch.zeros(2, 3), x, dim=-1)
    torch.testing.assert_close(h, x.sum(-1))
    torch.testing.assert_close(sums, x.sum((0, 1)))  # [T], as in torch's scan
    assert torch.equal(whole, x)


def test_length_and_reverse_by_position():
    h, ys = weft.scan(lambda h, _: (h + 1, h), torch.zeros(()), None, 4)
    assert h == 4 and ys.tolist() == [0, 1, 2, 3]
    assert weft.scan(lambda h, _: (h + 1, h), torch.zeros(()), None, 4, True)[1].tolist() == [3, 2, 1, 0]


def test_associative_scan_of_another_dim():
    x = torch.randn(3, 5, 4)
    torch.testing.assert_close(weft.associative_scan(torch.add, x, dim=1), x.cumsum(1))
    torch.testing.assert_close(weft.associative_scan(torch.add, x[:, :1], dim=1), x[:, :1])
    flipped = weft.associative_scan(lambda p, q: {"x": p["x"] + q["x"]}, {"x": x}, dim=-1, reverse=True)["x"]
    torch.testing.assert_close(flipped, x.flip(-1).cumsum(-1).flip(-1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: weft.scan(step, torch.zeros(3, 4), XS, dim=2), r"xs\['mask'\]: bool\[3,5\] has no dim 2"),
        (lambda: weft.scan(step, torch.zeros(3, 4), XS, 4, dim=1), r"float32\[3,5,4\] has 5 steps, but length is 4"),
        (lambda: weft.scan(step, torch.zeros(3, 4), None, 4, dim=1), "dim is 1, but there are no xs"),
        (
            lambda: weft.associative_scan(torch.add, XS["x"], dim=3),
            r"weft.associative_scan: xs: float32\[3,5,4\] has no",
        ),
        (
            lambda: weft.associative_scan(lambda p, q: (p, q), XS["x"]),
            r"scan: combine must return .*: \* in, \(\*, \*\)",
        ),
        (
            lambda: weft.associative_scan(lambda p, q: p.double(), XS["x"]),
            r"scan: combine must keep .* float64\[1,5,4\]",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_types():
    with pytest.raises(TypeError, match="dim must be an integer, but is 'T'"):
        weft.scan(step, torch.zeros(3, 4), XS, dim="T")
    with pytest.raises(TypeError, match=r"weft.associative_scan: combine must be callable, but is Tensor"):
        weft.associative_scan(XS["x"], torch.add)


def test_errors_of_associative_scan_name_it():
    kept = []

    def keeps(p, q):
        kept.append(p + q)
        return p + q

    with pytest.raises(RuntimeError, match=r"^weft\.associative_scan: combine has a side effect"):
        weft.associative_scan(keeps, XS["x"])
