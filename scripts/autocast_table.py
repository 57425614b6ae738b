"""The tables of docs/autocast.md: PyTorch's own test lists of autocast, run on the CPU, for CUDA and on device weft.

    python scripts/autocast_table.py            prints the tables
    python scripts/autocast_table.py --write    and puts them into docs/autocast.md

CUDA's column needs no GPU: its kernels of autocast run on tensors without values (FakeTensorMode). Which list of
ATen/autocast_mode.h an operator is in is read from that header, as it was when PyTorch was built.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.autocast_test_lists import AutocastCPUTestLists, AutocastTestLists
from torch.utils import _pytree as pytree

import weft  # noqa: F401

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "autocast.md"
HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
POLICIES = {
    "AT_FORALL_LOWER_PRECISION_FP": "lower",
    "AT_FORALL_FP32": "float32",
    "AT_FORALL_FP32_SET_OPT_DTYPE": "float32, set dtype",
    "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE": "float32, append dtype",
    "AT_FORALL_PROMOTE": "promote",
}
BY_LIST = " †"
SHORT = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64", torch.bool: "bool"}

EINSUMS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ij,jk->ik", ((3, 4), (4, 5))),
    ("ij,jk", ((3, 4), (4, 5))),
    ("ij,kj->ik", ((3, 4), (5, 4))),
    ("ji,jk->ik", ((4, 3), (4, 5))),
    ("ij,jk->ki", ((3, 4), (4, 5))),
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
    ("bij,bkj->bik", ((2, 3, 4), (2, 5, 4))),
    ("bij,jk->bik", ((2, 3, 4), (4, 5))),
    ("bij,bjk->ik", ((2, 3, 4), (2, 4, 5))),
    ("...ij,...jk->...ik", ((2, 3, 3, 4), (2, 3, 4, 5))),
    ("...ij,jk->...ik", ((2, 3, 3, 4), (4, 5))),
    ("b...d,b...d->b...", ((2, 3, 4), (2, 3, 4))),
    ("i,j->ij", ((3,), (4,))),
    ("i,i->", ((4,), (4,))),
    ("ij,j->i", ((3, 4), (4,))),
    ("i,ij->j", ((3,), (3, 4))),
    ("ij,ij->", ((3, 4), (3, 4))),
    ("ij,ij->ij", ((3, 4), (3, 4))),
    ("ij,ij->i", ((3, 4), (3, 4))),
    ("bi,bj->bij", ((2, 3), (2, 4))),
    ("ii->i", ((4, 4),)),
    ("ii->", ((4, 4),)),
    ("ij->ji", ((3, 4),)),
    ("ij->", ((3, 4),)),
    ("ij->j", ((3, 4),)),
    ("bii->bi", ((2, 3, 3),)),
    ("...ij->...ji", ((2, 3, 4),)),
    ("ii,ij->j", ((3, 3), (3, 4))),
    ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
    ("bi,ij,bj->b", ((2, 3), (3, 4), (2, 4))),
    ("i,j,k->ijk", ((2,), (3,), (4,))),
    ("bn,anm,bm->ba", ((2, 3), (5, 3, 4), (2, 4))),
    ("ab,bc,cd,de->ae", ((2, 3), (3, 4), (4, 3), (3, 2))),
    ("bhqd,bhkd->bhqk", ((2, 2, 3, 4), (2, 2, 5, 4))),
    ("bhqk,bkhd->bqhd", ((2, 2, 3, 5), (2, 5, 2, 4))),
    ("bkhd,bqhd->bqkh", ((2, 3, 2, 4), (2, 5, 2, 4))),
    ("ijkl,klm->ijm", ((2, 3, 4, 2), (4, 2, 3))),
    ("i,ij", ((3,), (3, 4))),
)


@dataclass(frozen=True)
class Case:
    """A call of a list: `op` of a module, or of the tensor that is the first argument."""

    source: str
    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    module: Any = torch
    dtype: torch.dtype = torch.float16

    @property
    def name(self) -> str:
        return f"{self.op} {self.args[0]}" if self.op == "einsum" else self.op

    @property
    def operation(self) -> str:
        """As the lists write it."""
        return self.op.strip("_") if self.op.startswith("__") else self.op

    @property
    def given(self) -> str:
        tensors = [leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)]
        return ", ".join(dict.fromkeys(shorts(t.dtype) for t in tensors))

    def function(self) -> Callable[..., Any]:
        if self.module is not None and hasattr(self.module, self.op):
            return getattr(self.module, self.op)  # type: ignore[no-any-return]
        return getattr(torch.Tensor, self.op)  # type: ignore[no-any-return]

    def lowered_to(self, dtype: torch.dtype) -> Case:
        """The same for another lower dtype."""
        to = lambda t: t.to(dtype) if t.dtype == self.dtype else t  # noqa: E731
        args, kwargs = self.on(to)
        return Case(self.source, self.op, args, kwargs, self.module, dtype)

    def on(self, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with each tensor changed."""
        return pytree.tree_map_only(torch.Tensor, change, (self.args, self.kwargs))  # type: ignore[no-any-return]


def shorts(dtype: torch.dtype) -> str:
    return SHORT.get(dtype, str(dtype).removeprefix("torch.").replace("int", "i"))


def _module_of(name: str) -> Any:
    if name.startswith("nn_"):
        return torch._C._nn
    if name.startswith("linalg_"):
        return torch._C._linalg
    return None if name.startswith("methods_") else torch


def _calls(entry: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """An entry is (op, arguments), and after these keywords, more arguments, the dtype that is expected or a flag."""
    keywords = next((more for more in entry[2:] if isinstance(more, dict)), {})
    yield entry[1], keywords
    for more in entry[2:]:
        if isinstance(more, tuple):
            yield more, keywords


def _of_lists(lists: Any, source: str, dtype: torch.dtype) -> Iterator[Case]:
    for name, entries in vars(lists).items():
        for entry in entries:
            if isinstance(entry[1], str):
                continue  # einsum, with operands of other sizes than its equation's; see EINSUMS
            if name == "banned":
                yield Case(source, entry[0], entry[1], module=entry[2], dtype=dtype)
                continue
            for args, kwargs in _calls(entry):
                yield Case(source, entry[0], args, kwargs, _module_of(name), dtype)


def _fits(case: Case) -> bool:
    """Autocast in one half precision is no place for the other."""
    other = torch.bfloat16 if case.dtype == torch.float16 else torch.float16
    return all(leaf.dtype != other for leaf in pytree.tree_leaves(case.args) if isinstance(leaf, torch.Tensor))


def _others() -> Iterator[Case]:
    """Operators of the lists that PyTorch's tests leave out."""
    half, single = (lambda *sizes: torch.randn(sizes, dtype=torch.float16)), torch.randn
    for sizes, names in (
        ((2, 3, 4), ("upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_linear1d")),
        (
            (2, 3, 4, 4),
            (
                "upsample_nearest2d",
                "_upsample_nearest_exact2d",
                "upsample_bilinear2d",
                "upsample_bicubic2d",
                "_upsample_bilinear2d_aa",
                "_upsample_bicubic2d_aa",
            ),
        ),
        ((2, 3, 4, 4, 4), ("upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_trilinear3d")),
    ):
        for name in names:
            corners = () if "nearest" in name else (False,)
            yield Case("more", name, (half(*sizes), [6] * (len(sizes) - 2), *corners), module=torch.ops.aten)
    yield Case(
        "more",
        "scaled_dot_product_attention",
        (single(2, 2, 3, 4), single(2, 2, 5, 4), single(2, 2, 5, 4)),
        module=torch.nn.functional,
    )
    yield Case(
        "more",
        "scaled_dot_product_attention",
        (single(2, 2, 3, 4), single(2, 2, 3, 4), single(2, 2, 3, 4)),
        {"is_causal": True},
        module=torch.nn.functional,
    )
    yield Case("more", "native_layer_norm", (half(3, 4), [4], None, None, 1e-5))
    yield Case("more", "frobenius_norm", (half(3, 4), [0, 1]))
    yield Case("more", "nuclear_norm", (half(3, 4),))
    yield Case("more", "nuclear_norm", (half(2, 3, 4), [1, 2]))
    yield Case("more", "linalg_vector_norm", (half(3, 4), 3), module=torch._C._linalg)
    yield Case("more", "linalg_matrix_norm", (half(3, 4), 1), module=torch._C._linalg)
    yield Case("more", "linalg_matrix_norm", (half(3, 4), "fro"), module=torch._C._linalg)
    yield Case("more", "pow", (1.5, half(3)))
    yield Case("more", "huber_loss", (half(3, 4), half(3, 4)), module=torch._C._nn)
    yield Case("more", "dist", (half(3, 4), half(3, 4), 3))
    yield Case("more", "baddbmm", (single(2, 3, 5), single(2, 3, 4), single(2, 4, 5)), {"beta": 0.5, "alpha": 2})
    yield Case(
        "more", "conv2d", (single(2, 4, 5, 5), single(6, 2, 3, 3), single(6)), {"stride": 2, "padding": 1, "groups": 2}
    )
    yield Case("more", "conv1d", (single(2, 4, 5), single(6, 4, 3)), {"padding": "same"})
    yield Case("more", "linear", (single(3, 4), single(5, 4), single(5)), module=torch._C._nn)
    yield Case("more", "matmul", (single(2, 3, 4), single(4)))
    yield Case("more", "matmul", (single(5, 1, 3, 4), single(2, 4, 3)))


def cases() -> list[Case]:
    """Each call of PyTorch's lists, on CPU tensors, operators that these leave out, and einsum in many forms."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = list(_of_lists(AutocastTestLists("cpu"), "cuda", torch.float16))
        for case in _of_lists(AutocastCPUTestLists("cpu"), "cpu", torch.bfloat16):
            if not _fits(case):
                case = Case(case.source, case.op, case.args, case.kwargs, case.module, torch.float16)
            found.append(case)
        found += _others()
        for equation, shapes in EINSUMS:
            found.append(Case("einsum", "einsum", (equation, *(torch.randn(shape) for shape in shapes))))
    return found


@contextmanager
def autocast(device: str, dtype: torch.dtype) -> Iterator[None]:
    """As torch.autocast, which refuses CUDA where there is none."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])


def result_dtypes(result: Any) -> str:
    leaves = pytree.tree_leaves(result)
    return ", ".join(shorts(leaf.dtype) if isinstance(leaf, torch.Tensor) else type(leaf).__name__ for leaf in leaves)


def run(case: Case, device: str) -> Any:
    """The call under autocast of a device: "cpu", "weft", or "cuda" on tensors without values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if device == "cuda":
            with FakeTensorMode(), autocast(device, case.dtype):
                args, kwargs = case.on(lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda"))
                return case.function()(*args, **kwargs)
        args, kwargs = case.on(lambda t: t.to(device))
        with autocast(device, case.dtype):
            result = case.function()(*args, **kwargs)
        return pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, result)


def outcome(case: Case, device: str) -> str:
    """The dtypes of results, or that the call raises."""
    try:
        return result_dtypes(run(case, device))
    except Exception as error:
        return "refused" if "unsafe to autocast" in str(error) else "raises"


def outcome_for_cuda(case: Case, lists: dict[str, str]) -> str:
    """As `outcome`. What runs on a GPU only has the dtype that its list stands for, marked."""
    found = outcome(case, "cuda")
    if found != "raises":
        return found
    dtypes = [leaf.dtype for leaf in pytree.tree_leaves(case.args) if isinstance(leaf, torch.Tensor)]
    policy = policy_of(case, lists)
    if policy == "lower" or (policy == "promote" and torch.float32 not in dtypes):
        return shorts(case.dtype) + BY_LIST
    return ("f32" if policy else "bool" if case.op == "equal" else "a GPU") + BY_LIST


def lists_of_macros() -> dict[str, str]:
    """Which policy ATen/autocast_mode.h has for an operator, as `name` or `name.overload`."""
    text = HEADER.read_text().replace("\\\n", " ")
    found = {}
    for macro, policy in POLICIES.items():
        body = re.search(rf"#define {macro}\(_\)(.*)", text)
        assert body is not None, f"{HEADER} has no {macro}"
        if macro == "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE":
            names = re.findall(r'"([\w.]+)"', body[1])
        else:
            names = [".".join(re.split(r",\s*", one)) for one in re.findall(r"_\(([\w, ]+)\)", body[1])]
        found.update(dict.fromkeys(names, policy))
    return found


def policy_of(case: Case, lists: dict[str, str]) -> str:
    """The policy that an operator's overloads have in common."""
    found = {policy for name, policy in lists.items() if name.split(".")[0] == case.operation}
    return "refused" if case.op == "binary_cross_entropy" else next(iter(found), "")


def registered(key: str) -> set[str]:
    """The operators that have a kernel of their own for a dispatch key of autocast."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return {name.removeprefix("aten::") for name in names if name.startswith("aten::")}


def rows() -> list[dict[str, str]]:
    lists = lists_of_macros()
    found = []
    for case in cases():
        row = {
            "operator": f"`{case.name}`",
            "test list": case.source,
            "arguments": case.given,
            "lower dtype": shorts(case.dtype),
            "cpu": outcome(case, "cpu"),
            "cuda": outcome_for_cuda(case, lists),
            "weft": outcome(case, "weft"),
            "cuda's list": policy_of(case, lists),
        }
        if row not in found:
            found.append(row)
    return found


def table(found: list[dict[str, str]]) -> str:
    """The rows in Markdown, a line each."""
    lines = [f"| {' | '.join(found[0])} |", "|---" * len(found[0]) + "|"]
    lines += [f"| {' | '.join(row.values())} |" for row in found]
    return "\n".join(lines) + "\n"


def differing() -> str:
    """Operators that are in one of PyTorch's two lists only."""
    cpu, cuda, ours = (registered(key) for key in ("AutocastCPU", "AutocastCUDA", "AutocastPrivateUse1"))

    def names(which: set[str]) -> str:
        return ", ".join(f"`{name}`" for name in sorted(which)) or "none"

    return (
        f"In the CPU's list only: {names(cpu - cuda)}.\n\n"
        f"In CUDA's list only: {names(cuda - cpu)}.\n\n"
        f"In CUDA's list and not in weft's: {names(cuda - ours)}.\n\n"
        f"In weft's list and not in CUDA's: {names(ours - cuda)}.\n"
    )


def sections() -> dict[str, str]:
    """What stands between `<!-- name -->` and `<!-- /name -->` in the document."""
    return {"lists": differing(), "operators": table(rows())}


def put(text: str, name: str, made: str) -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, _, rest = text.partition(begin)
    return before + begin + made + end + rest.partition(end)[2]


def main(arguments: list[str]) -> None:
    made = sections()
    print(*made.values(), sep="\n", end="")
    if "--write" in arguments:
        text = DOCUMENT.read_text()
        for name, section in made.items():
            text = put(text, name, section)
        DOCUMENT.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
