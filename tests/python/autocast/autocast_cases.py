"""Calls under autocast, the same calls with explicit casts, and comparisons; for the tests of autocast on device
weft."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

ROOT = Path(__file__).resolve().parents[3]
spec = importlib.util.spec_from_file_location("autocast_table", ROOT / "scripts" / "autocast_table.py")
tables = importlib.util.module_from_spec(spec)
sys.modules["autocast_table"] = tables
spec.loader.exec_module(tables)

LISTS = tables.lists_of_macros()
CASES = [case for case in tables.cases() if not case.op.startswith("cudnn_")]
HALVES = [torch.bfloat16, torch.float16]
CASES += [case.lowered_to(torch.bfloat16) for case in CASES if case.source in ("cuda", "more")]
REFUSED = "binary_cross_entropy"


def ids(case):
    return f"{case.source}-{case.name}-{tables.shorts(case.dtype)}".replace(" ", "_")


def is_castable(tensor):
    return tensor.is_floating_point() and tensor.dtype != torch.float64


def explicit(case, device):
    """The call with the casts of its list written out."""
    policy = tables.policy_of(case, LISTS)
    leaves = [leaf for leaf in pytree.tree_leaves(case.args) if isinstance(leaf, torch.Tensor) and is_castable(leaf)]
    more, to = {}, None
    if policy == "lower":
        to = case.dtype
    elif policy == "float32":
        to = torch.float32
    elif policy == "promote":
        to = torch.float32 if any(leaf.dtype == torch.float32 for leaf in leaves) else case.dtype
    elif policy:
        more = {"dtype": torch.float32}
    args, kwargs = case.on(lambda t: t.to(device))
    if to is not None:
        change = lambda t: t.to(to) if is_castable(t) else t  # noqa: E731
        args, kwargs = pytree.tree_map_only(torch.Tensor, change, (args, kwargs))
    return case.function()(*args, **kwargs, **more)


def explicit_on_cpu(case):
    """In float32, rounded, where PyTorch's CPU kernel has no half precision."""
    try:
        return values(explicit(case, "cpu"))
    except NotImplementedError:
        args, kwargs = case.on(torch.Tensor.float)
        return [value.to(case.dtype) for value in values(case.function()(*args, **kwargs))]


def values(result):
    return [leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf for leaf in pytree.tree_leaves(result)]


def equal(got, want):
    got, want = values(got), values(want)
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        if not isinstance(one, torch.Tensor):
            assert one == other
            continue
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def close(got, want):
    """Half precisions: within a rounding of the largest term, since sums may round before the last term is added."""
    assert got.dtype == want.dtype
    if want.dtype not in HALVES:
        return torch.testing.assert_close(got, want, equal_nan=True)
    rounding = torch.finfo(want.dtype).eps * max(1.0, want.abs().nan_to_num().max().item() if want.numel() else 0)
    return torch.testing.assert_close(got, want, rtol=0.016, atol=2 * rounding, equal_nan=True)
