"""Messages about mistakes in a step: where, with which shapes, and what to do instead."""

from __future__ import annotations

import re
import traceback

import numpy as np
import pytest
import torch
from torch import nn

import weft

H, XS = torch.zeros(2), torch.ones(3, 2)


def told(call):
    """The last lines of the traceback of the error that the call raises."""
    with pytest.raises(Exception) as raised:
        call()
    return "".join(traceback.format_exception_only(raised.type, raised.value))


def reasons():
    return "\n".join(weft.stats()["fallbacks"])


def test_errors_in_a_step_have_its_shapes():
    text = told(lambda: weft.scan(lambda h, x: (h["a"] @ x, h), {"a": torch.ones(3, 4)}, torch.ones(5, 3, 3)))
    assert "mat1 and mat2" in text
    assert "in step 0 of 5 of weft.scan, with carry['a'] float32[3,4], x float32[3,3]" in text
    text = told(lambda: weft.while_loop(lambda c: c.sum() < 3, lambda c: c @ torch.ones(5, 5), torch.ones(2)))
    assert "in step 0 of weft.while_loop, with carry float32[2]" in text

    @weft.jit
    def product(a, b):
        return a @ b

    text = told(lambda: product(torch.ones(2, 3), torch.ones(2, 3)))
    assert "weft.jit of test_errors_in_a_step_have_its_shapes.<locals>.product, with args[0] float32[2,3]" in text


class _Keeps(nn.Module):
    def forward(self, h, x):
        self.seen = h * x
        return h, x


class _Changes(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(2)  # a plain tensor

    def forward(self, h, x):
        self.scale.mul_(2)
        return h * self.scale, x


def test_side_effects_have_names_and_lines():
    kept = []

    def keeps(h, x):
        h = h + x
        kept.append(h * 2)
        return h, h

    line = keeps.__code__.co_firstlineno + 2
    for _ in range(2):
        assert f"float32[2] that it computes is kept after it returns, as kept[0] (test_told.py:{line})" in told(
            lambda: weft.scan(keeps, H, XS)
        )
        kept.clear()
    line = _Keeps.forward.__code__.co_firstlineno + 1
    for _ in range(2):  # the first time the step runs twice, and the second run's tensor takes the first one's place
        assert f"as self.seen (test_told.py:{line})" in told(lambda: weft.scan(_Keeps(), H, XS))
    line = _Changes.forward.__code__.co_firstlineno + 1
    text = told(lambda: weft.scan(_Changes(), H, XS))
    assert f"changes a captured tensor in place (mul_): self.scale: float32[2] (test_told.py:{line}: self.scale" in text


class _Constants(nn.Module):
    """Plain tensors and arrays beside parameters, in containers too."""

    def __init__(self):
        super().__init__()
        self.scale = torch.tensor([1.0, 2.0])
        self.shift = np.array([1.0, 3.0], dtype=np.float32)
        self.more = {"mask": np.array([True, False]), "list": [torch.ones(2)]}

    def forward(self, h, x):
        h = h * self.scale + torch.as_tensor(self.shift) + self.more["list"][0]
        return torch.where(torch.from_numpy(self.more["mask"]), h, x), h


def test_plain_tensors_and_arrays_of_a_module():
    module = _Constants()
    compiled = torch.compile(lambda h, xs: weft.scan(module, h, xs), backend="weft")

    def expected():
        h, ys = H, []
        for x in XS:
            h, y = module(h, x)
            ys.append(y)
        return h, torch.stack(ys)

    for change in (None, lambda: module.scale.mul_(3), lambda: module.shift.__setitem__(0, 5)):
        if change is not None:
            change()
        for call in (lambda: weft.scan(module, H, XS), lambda: compiled(H, XS)):
            torch.testing.assert_close(call(), expected())
    module.scale, module.shift = torch.ones(2), np.zeros(2, dtype=np.float32)
    torch.testing.assert_close(weft.scan(module, H, XS), expected())
    torch.testing.assert_close(compiled(H, XS), expected())
    assert reasons() == ""
    kept = module.forward

    def keeps(h, x):
        module.more["kept"] = h * 2
        return kept(h, x)

    assert "more['kept'] (test_told.py:" in told(lambda: weft.scan(keeps, H, XS))


def test_functions_of_two_arguments_for_a_while_loop():
    class Two(nn.Module):
        def forward(self, i, h):
            return i + 1, h

    for name, cond, body in (
        ("cond", lambda i, h: i < 3, lambda carry: carry),
        ("body", lambda carry: carry[0] < 3, lambda i, h: (i + 1, h)),
        ("body", lambda carry: carry[0] < 3, Two()),
    ):
        text = told(lambda: weft.while_loop(cond, body, (torch.tensor(0), H)))  # noqa: B023
        assert f"cond and body take the whole carry as one argument, but {name} takes 2" in text


def test_associative_scan_and_jit_name_themselves():
    for combine in (lambda a: a, lambda a, b: (a, b), lambda a, b: a @ torch.ones(5, 5), lambda a, b: a.double()):
        assert "weft.associative_scan" in told(lambda: weft.associative_scan(combine, XS))  # noqa: B023
    for function in (lambda: H, lambda a: a @ torch.ones(5, 5), lambda a: -a if a.sum() > 0 else a):
        assert "weft.jit" in told(lambda: weft.jit(function)(XS))  # noqa: B023


def test_a_step_that_prints(capsys):
    def prints(h, x):
        h = h + x
        print("h is", h)
        return h, h

    assert weft.scan(prints, H, XS)[0].tolist() == [3, 3]
    assert "h is tensor([3., 3.])" in capsys.readouterr().out
    assert "it prints a tensor (test_told.py:" in reasons() and "before its tensors have values" in reasons()


def test_numpy_arrays_in_a_step():
    array = np.ones(2, dtype=np.float32)
    assert weft.scan(lambda h, x: (h + torch.as_tensor(array), x), H, XS)[0].tolist() == [3, 3]
    assert reasons() == ""
    assert weft.scan(lambda h, x: (torch.as_tensor(np.tanh(h.numpy()) + 1), x), H, XS)[0].shape == (2,)
    assert "it makes a NumPy array of a tensor (test_told.py:" in reasons() and "torch.as_tensor" in reasons()
    assert "xs must be a tensor, a number or None, but is ndarray: make it one by torch.as_tensor" in told(
        lambda: weft.scan(lambda h, x: (h, x), H, array)
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda v: torch.special.zeta(1.5 + v.square(), 1 + v),
        lambda v: torch.multinomial(torch.softmax(v, 0), 1),
        lambda v: torch.unique(v).sum(),
        lambda v: v.to_sparse().to_dense(),
        lambda v: torch.view_as_real(torch.complex(v, v).sqrt()).sum(),
        lambda v: torch.quantize_per_tensor(v, 0.1, 0, torch.qint8).dequantize(),
        lambda v: v.clone().resize_(1).sum(),
    ],
)
def test_reasons_speak_of_the_users_program(change):
    """Reasons name the line, and not the tensors and devices that a step is recorded on."""
    weft.scan(lambda h, x: (h + change(x), x), H, XS)
    assert "(test_told.py:" in reasons()
    assert not re.search(r"stand-in|meta|device|leaf Variable|require", reasons())
