"""PyTorch's op_db on the device "weft": forward, gradients, in-place, out= and bfloat16, held to the CPU.

`make test` tries the first samples of each op one operation at a time, and a part of the ops as compiled programs;
WEFT_SWEEP=all tries all samples both ways, in `make nightly`.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Iterator

import device_op_db as sweep
import pytest
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

import weft

ALL = os.environ.get("WEFT_SWEEP") == "all"
#: One in so many ops is tried compiled, unless all are.
COMPILED_SHARE = 10
#: The kinds of tests of each op, their dtypes, and their numbers of samples.
TRIED = [
    ("forward", torch.float32, 2),
    ("gradient", torch.float32, 1),
    ("in_place", torch.float32, 1),
    ("out", torch.float32, 1),
    ("forward", torch.bfloat16, 1),
]

MEMORY = "its result is what happened to be in memory"
COORDINATES = "the CPU's kernel rounds coordinates to bfloat16 on the way; the device is 100 times nearer to float64's"
#: By op and kind, or "bfloat16", why samples differ from the CPU's. All others must be right.
EXCEPTIONS = {
    **dict.fromkeys(
        [
            (name, kind)
            for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
            for kind in ("forward", "out", "bfloat16")
        ],
        MEMORY,
    ),
    ("fft.ihfft2", "out"): "PyTorch's CPU kernel writes a part of `out` only, where it transforms one dim",
    ("fft.ihfftn", "out"): "as fft.ihfft2",
    ("grid_sampler_2d", "bfloat16"): COORDINATES,
    ("nn.functional.grid_sample", "bfloat16"): COORDINATES,
    ("addbmm", "in_place"): "the CPU gives the tensor other sizes, which no operation in place may; an error here",
    ("sparse.mm.reduce", "gradient"): "PyTorch's kernel keeps the places of the maxima only above autograd; an error",
}


def name_of(op: OpInfo) -> str:
    return sweep.name_of(op).replace(".", "_")


@pytest.fixture(autouse=True)
def _quietly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hides warnings, and takes the cost from seeds: stack traces that are written for devices that aren't there."""
    monkeypatch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)
    monkeypatch.setattr(common_utils, "extract_test_fn", lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    weft._C.device_compile_at(2)


def check_op(op: OpInfo) -> None:
    """Every sample is right, or the op stands in EXCEPTIONS with the reason."""
    found = []
    for kind, dtype, most in TRIED:
        tried, wrong = sweep.failures(op, kind, dtype, 1 << 30 if ALL else most)
        reason = EXCEPTIONS.get((sweep.name_of(op), kind if dtype == torch.float32 else "bfloat16"))
        if reason is None:
            found += [f"{kind} {dtype} {sample}: {text}" for sample, text in wrong.items()]
        elif ALL and reason not in (MEMORY, COORDINATES):  # these may happen to be equal
            assert wrong or not tried, f"{kind} is right: no exception any more"
    assert not found, "\n".join(found)


@pytest.mark.parametrize("op", op_db, ids=name_of)
def test_one_by_one(op: OpInfo) -> None:
    weft._C.device_compile_at(sweep.NEVER)
    check_op(op)


@pytest.mark.parametrize(
    "op", [op for op in op_db if ALL or zlib.crc32(op.full_name.encode()) % COMPILED_SHARE == 0], ids=name_of
)
def test_compiled(op: OpInfo) -> None:
    weft._C.device_compile_at(sweep.AT_FIRST_SIGHT)
    check_op(op)
