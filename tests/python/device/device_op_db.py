"""Samples of PyTorch's op_db on the device "weft", held to the CPU's results.

    python tests/python/device/device_op_db.py [--dtype bfloat16] [--samples 4] [--compiled] [--share 0/2] [kind ...]

prints for each kind (forward, gradient, in_place, out) how many samples are right, what the others say, and what did
not run as a program. PYTHONPATH has to have tests/python/shared.
"""

from __future__ import annotations

import argparse
import collections
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree
from torch_op_db import op_db

import weft

#: A batch seen this many times is compiled.
NEVER, AT_FIRST_SIGHT = 1 << 60, 1


def tensors_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def on_device(tensor: Tensor) -> Tensor:
    """A copy of the tensor on the device, with the same strides and offset."""
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.is_contiguous():
        moved = tensor.detach().to("weft")
    else:
        last = tensor.storage_offset() + sum(
            (n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 0
        )
        memory = torch.as_strided(tensor.detach(), (last + 1 if tensor.numel() else 0,), (1,), 0)
        moved = torch.as_strided(memory.to("weft"), tensor.shape, tensor.stride(), tensor.storage_offset())
    return moved.requires_grad_(tensor.requires_grad)


def in_memory_of_its_own(tensor: Tensor) -> Tensor:
    """A copy on the CPU with the tensor's strides, where a clone would have others."""
    copy = tensor.detach().clone()
    return copy.requires_grad_(tensor.requires_grad)


class Call:
    """A sample of an op: its arguments on the CPU, and the same on the device."""

    def __init__(self, op: OpInfo, sample: SampleInput) -> None:
        self.op = op
        self.given = (sample.input, sample.args, sample.kwargs)
        self.process = sample.output_process_fn_grad

    def arguments(self, device: str, requires_grad: bool) -> tuple[Any, Any, Any]:
        def prepared(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                stays = device == "cpu" or self.is_of_the_cpu(leaf)
                made = in_memory_of_its_own(leaf) if stays else on_device(leaf)
                return made.detach().requires_grad_(requires_grad and leaf.requires_grad)
            return leaf

        x, args, kwargs = pytree.tree_map(prepared, self.given)
        if device != "cpu" and "device" in kwargs:
            kwargs = {**kwargs, "device": device}
        return x, args, kwargs

    def is_of_the_cpu(self, leaf: Tensor) -> bool:
        """Whether PyTorch wants the argument on the CPU whatever the device."""
        return self.op.name == "tensor_split" and leaf is not self.given[0]

    @property
    def stays(self) -> bool:
        """Whether the results are on the device of the inputs."""
        return self.op.name != "to" and bool(tensors_of(self.given))


def samples(op: OpInfo, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[Call]:
    torch.default_generator.manual_seed(0)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=requires_grad):
        yield Call(op, sample)


#: Ops whose gradient is a small difference of large numbers: the CPU's own is as far from float64's as the device's.
ROUGH = {"logcumsumexp"}


def tolerance(want: Tensor, wide: bool, rough: bool) -> dict[str, float]:
    """How far sums in another order may differ, relative to the largest term; the result may be a small rest of large
    terms."""
    if not (want.is_floating_point() or want.is_complex()):
        return {}
    finite = want.detach().abs().nan_to_num(0, 0, 0)
    scale = max(1.0, float(finite.max())) if want.numel() else 1.0
    if want.dtype in (torch.bfloat16, torch.float16):
        return {"rtol": 5e-2, "atol": 2e-2 * scale}
    if wide and rough:
        return {"rtol": 1e-2, "atol": 2e-3 * scale}
    return {"rtol": 1e-3, "atol": 1e-4 * scale} if wide else {"rtol": 2e-6, "atol": 1e-5 * scale}


def close(got: Any, want: Any, wide: bool, same_device: bool, has_strides: bool = True, rough: bool = False) -> None:
    """Raises AssertionError unless they are the same, tensors of the device beside tensors of the CPU."""
    got, got_form = pytree.tree_flatten(got)
    want, want_form = pytree.tree_flatten(want)
    assert len(got) == len(want), f"{got_form} instead of {want_form}"
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, Tensor):
            assert type(a) is type(b), f"{a!r} instead of {b!r}"
            if isinstance(b, float | int | complex):
                torch.testing.assert_close(a, b, equal_nan=True)
            continue
        assert isinstance(a, Tensor), f"{a!r} instead of a tensor"
        assert a.dtype == b.dtype, f"{a.dtype} instead of {b.dtype}"
        assert a.shape == b.shape, f"{tuple(a.shape)} instead of {tuple(b.shape)}"
        assert a.layout == b.layout, f"{a.layout} instead of {b.layout}"
        assert a.device.type == "weft" or not same_device, f"result on {a.device}"
        if b.layout != torch.strided:
            a, b = a.cpu().to_dense(), b.to_dense()
        elif b.numel() and has_strides:
            assert a.stride() == b.stride(), f"strides {a.stride()} instead of {b.stride()}"
        assert a.is_conj() == b.is_conj() and a.is_neg() == b.is_neg(), "conj or neg bit"
        torch.testing.assert_close(a.detach().cpu(), b.detach(), equal_nan=True, **tolerance(b, wide, rough))


def forward(call: Call) -> Callable[[str], Any]:
    def run(device: str) -> Any:
        x, args, kwargs = call.arguments(device, False)
        return call.op(x, *args, **kwargs)

    return run


def gradient(call: Call) -> Callable[[str], Any]:
    def run(device: str) -> Any:
        x, args, kwargs = call.arguments(device, True)
        inputs = [t for t in tensors_of((x, args, kwargs)) if t.requires_grad]
        result = call.op(x, *args, **kwargs)
        outputs = [t for t in tensors_of(call.process(result)) if t.requires_grad]
        if not inputs or not outputs:
            raise NotImplementedError("nothing to differentiate")
        generator = torch.Generator().manual_seed(1)
        cotangents = [
            torch.randn(y.shape, generator=generator).to(y.dtype).to(y.device) if y.layout == torch.strided else None
            for y in outputs
        ]
        found = torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)
        return [g if g is not None else "unused" for g in found]

    return run


def in_place(call: Call, strided: bool = False) -> Callable[[str], Any]:
    """The results, and all memory around the changed tensors."""

    def run(device: str) -> Any:
        x, args, kwargs = call.arguments(device, False)
        variant = call.op.inplace_variant
        memory = None
        if strided and isinstance(x, Tensor) and x.dim() > 0:
            memory = torch.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), dtype=x.dtype, device=x.device).transpose(0, -1)
            view = memory.transpose(0, -1)[..., 1::2]
            view.copy_(x)
            x = view
        result = variant(x, *args, **kwargs)
        tensor = x[0] if isinstance(x, list | tuple) else x
        assert not isinstance(result, Tensor) or result is tensor
        return [result, x, memory]

    return run


def out(call: Call, resized: bool = False) -> Callable[[str], Any]:
    def run(device: str) -> Any:
        x, args, kwargs = call.arguments(device, False)
        plain = call.op(x, *args, **kwargs)
        like = [torch.empty((0,) if resized else t.shape, dtype=t.dtype, device=t.device) for t in tensors_of(plain)]
        if not like:
            raise NotImplementedError("no tensor")
        given: Any = like[0] if isinstance(plain, Tensor) else tuple(like)
        result = call.op(x, *args, **{k: v for k, v in kwargs.items() if k not in ("device", "dtype")}, out=given)
        assert all(a is b for a, b in zip(tensors_of(result), like, strict=True))
        if resized:  # PyTorch leaves their strides open
            like = [t.contiguous() for t in like]
        return like

    return run


KINDS: dict[str, Callable[[OpInfo], list[Callable[[Call], Callable[[str], Any]]]]] = {
    "forward": lambda op: [forward],
    "gradient": lambda op: [gradient] if op.supports_autograd else [],
    "in_place": lambda op: [in_place, lambda call: in_place(call, True)] if op.inplace_variant else [],
    "out": lambda op: [out, lambda call: out(call, True)] if op.supports_out else [],
}


def supports(op: OpInfo, kind: str, dtype: torch.dtype) -> bool:
    if kind == "gradient":
        return dtype in op.supported_backward_dtypes("cpu") and dtype in op.supported_dtypes("cpu")
    return dtype in op.supported_dtypes("cpu")


class Undone(Exception):
    """PyTorch itself refuses the sample on the CPU."""


def check_call(call: Call, run: Callable[[str], Any], wide: bool) -> None:
    """Raises an error that says what is wrong on the device, or Undone if the CPU refuses the sample too."""
    torch.default_generator.manual_seed(3)
    try:
        want = run("cpu")
    except Exception as error:
        raise Undone from error
    torch.default_generator.manual_seed(3)
    got = run("weft")
    weft.sync()
    # Attention on the device is the operation for the CPU, whose gradients have strides of their own.
    has_strides = not (wide and "attention" in call.op.name)
    close(got, want, wide, call.stays, has_strides, call.op.name in ROUGH)


def failures(op: OpInfo, kind: str, dtype: torch.dtype, most: int) -> tuple[int, dict[str, str]]:
    """The number of samples tried, and the messages of the wrong ones."""
    tried, wrong = 0, {}
    if not supports(op, kind, dtype):
        return 0, {}
    for number, call in enumerate(samples(op, dtype, kind == "gradient")):
        if number >= most:
            break
        for form, make in enumerate(KINDS[kind](op)):
            try:
                check_call(call, make(call), wide=kind == "gradient")
            except Undone:
                continue
            except Exception as error:
                wrong[f"{number}.{form}"] = f"{type(error).__name__}: {error}"
            tried += 1
    return tried, wrong


def name_of(op: OpInfo) -> str:
    return op.full_name + ("." + op.variant_test_name if op.variant_test_name not in op.full_name else "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=[])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=1 << 30)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    weft._C.device_compile_at(AT_FIRST_SIGHT if given.compiled else NEVER)
    part, parts = map(int, given.share.split("/"))
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for number, op in enumerate(op_db):
        if number % parts != part or (given.only and given.only not in name_of(op).split(",")[0]):
            continue
        for kind in given.kinds or list(KINDS):
            print(f"# {name_of(op)} {kind}", flush=True)
            tried, wrong = failures(op, kind, getattr(torch, given.dtype), given.samples)
            counts[kind, "tried"] += tried
            counts[kind, "wrong"] += len(wrong)
            for sample, text in wrong.items():
                print(f"{kind} {name_of(op)} {sample}: {' '.join(text.split())[:300]}", flush=True)
    for (kind, what), count in counts.items():
        print(f"= {kind} {what} {count}")
    for reason, count in sorted(weft.stats()["fallbacks"].items()):
        print(f"counted {count} {reason.splitlines()[0]}")


if __name__ == "__main__":
    main()
