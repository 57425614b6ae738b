"""Views and in-place writes on the device "weft": random programs of both, on the CPU and on the device.

Of each step's view or write the CPU's result is compared, at random points and at the end: sizes, strides, offsets,
which tensors share memory, and the contents of all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import weft

PROGRAMS, STEPS = 250, 14


def sizes_of_as_strided(r: random.Random, x: Tensor) -> tuple[list[int], list[int], int] | None:
    """A window into the tensor's storage, overlapping itself or not."""
    room = x.untyped_storage().nbytes() // x.element_size()
    for _ in range(8):
        sizes = [r.randint(1, 4) for _ in range(r.randint(0, 3))]
        strides = [r.choice([0, 1, 1, 2, 3, 5]) for _ in sizes]
        offset = r.randint(0, 3)
        if offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) < room:
            return sizes, strides, offset
    return None


def some_slice(r: random.Random, n: int) -> slice:
    start = r.randint(0, n)
    return slice(start, r.randint(start, n), r.randint(1, 3))


def reshaped(r: random.Random, x: Tensor) -> list[int]:
    n = x.numel()
    divisors = [d for d in range(1, n + 1) if n % d == 0] or [1]
    first = r.choice(divisors)
    second = r.choice([d for d in divisors if (n // first) % d == 0] or [1])
    return [first, n // first] if r.random() < 0.5 else [first, second, n // (first * second) if n else 0]


#: Each gives a function to be called on both devices, or None where the tensor has no such view.
View = Callable[[random.Random, Tensor], Callable[[Tensor], Tensor] | None]


def as_strided(r: random.Random, x: Tensor) -> Callable[[Tensor], Tensor] | None:
    found = sizes_of_as_strided(r, x)
    return found and (lambda t: torch.as_strided(t, *found))


def permute(r: random.Random, x: Tensor) -> Callable[[Tensor], Tensor]:
    order = list(range(x.dim()))
    r.shuffle(order)
    return lambda t: t.permute(order)


def of_one_dim(make: Callable[[random.Random, Tensor, int], Callable[[Tensor], Tensor] | None]) -> View:
    return lambda r, x: make(r, x, r.randrange(x.dim())) if x.dim() else None


def split(r: random.Random, x: Tensor, dim: int) -> Callable[[Tensor], Tensor] | None:
    length = r.randint(1, 3)
    which = r.random()
    return lambda t: (parts := t.split(length, dim))[int(which * len(parts))]


def chunk(r: random.Random, x: Tensor, dim: int) -> Callable[[Tensor], Tensor] | None:
    count, which = r.randint(1, 3), r.random()
    return lambda t: (parts := t.chunk(count, dim))[int(which * len(parts))]


def unbind(r: random.Random, x: Tensor, dim: int) -> Callable[[Tensor], Tensor] | None:
    if x.shape[dim] == 0:
        return None
    which = r.randrange(x.shape[dim])
    return lambda t: t.unbind(dim)[which]


def select(r: random.Random, x: Tensor, dim: int) -> Callable[[Tensor], Tensor] | None:
    if x.shape[dim] == 0:
        return None
    at = r.randrange(-x.shape[dim], x.shape[dim])
    return lambda t: t.select(dim, at)


def sliced(r: random.Random, x: Tensor, dim: int) -> Callable[[Tensor], Tensor]:
    part = some_slice(r, x.shape[dim])
    return lambda t: t[(slice(None),) * dim + (part,)]


def unfold(r: random.Random, x: Tensor, dim: int) -> Callable[[Tensor], Tensor] | None:
    if x.shape[dim] == 0 or x.dim() > 4:
        return None
    size, step = r.randint(1, x.shape[dim]), r.randint(1, 2)
    return lambda t: t.unfold(dim, size, step)


def expand(r: random.Random, x: Tensor) -> Callable[[Tensor], Tensor] | None:
    sizes = [r.randint(1, 3) if n == 1 else n for n in x.shape]
    front = [r.randint(1, 2)] if x.dim() < 3 else []
    return lambda t: t.expand(*front, *sizes)


def diagonal(r: random.Random, x: Tensor) -> Callable[[Tensor], Tensor] | None:
    if x.dim() < 2:
        return None
    a, b = r.sample(range(x.dim()), 2)
    offset = r.randint(-1, 1)
    return lambda t: t.diagonal(offset, a, b)


def view(r: random.Random, x: Tensor) -> Callable[[Tensor], Tensor]:
    sizes = reshaped(r, x)
    return lambda t: t.view(sizes)


def reshape(r: random.Random, x: Tensor) -> Callable[[Tensor], Tensor]:
    sizes = reshaped(r, x)
    return lambda t: t.reshape(sizes)


def unsqueeze(r: random.Random, x: Tensor) -> Callable[[Tensor], Tensor] | None:
    dim = r.randint(0, x.dim())
    return (lambda t: t.unsqueeze(dim)) if x.dim() < 5 else None


def other_dtype(r: random.Random, x: Tensor) -> Callable[[Tensor], Tensor]:
    dtype = r.choice([torch.int32, torch.float32, torch.int16, torch.float64, torch.int64])
    return lambda t: t.view(dtype)


def of_complex(r: random.Random, x: Tensor) -> Callable[[Tensor], Tensor] | None:
    if x.is_complex():
        return r.choice([torch.view_as_real, torch.real, torch.imag, torch.conj, lambda t: t.conj().imag])
    if x.dtype == torch.float32 and x.dim() and x.shape[-1] == 2:
        return torch.view_as_complex
    return None


VIEWS: list[View] = [
    as_strided,
    permute,
    view,
    reshape,
    expand,
    diagonal,
    unsqueeze,
    other_dtype,
    of_complex,
    *map(of_one_dim, [split, chunk, unbind, select, sliced, sliced, unfold]),
    lambda r, x: lambda t: t.squeeze(),
    lambda r, x: lambda t: t.detach(),
    lambda r, x: lambda t: t.data,
    lambda r, x: lambda t: t.mT if t.dim() >= 2 else t.view_as(t),
]


def numbers(r: random.Random, x: Tensor) -> Tensor:
    """Numbers of a shape that broadcasts to the tensor's."""
    shape = [1 if r.random() < 0.2 else n for n in x.shape]
    count = max(1, int(torch.Size(shape).numel()))
    values = torch.tensor([r.randint(1, 50) for _ in range(count)])[: torch.Size(shape).numel()]
    return values.reshape(shape).to(x.dtype)


#: Each gives a function to be called with a tensor of either device; `numbers` lies on the CPU.
def write(r: random.Random, x: Tensor, other: Tensor) -> Callable[[Tensor, Tensor], object]:
    given = numbers(r, x)
    dim = r.randrange(x.dim()) if x.dim() else 0
    n = x.shape[dim] if x.dim() else 1
    part = some_slice(r, n)
    scalar = r.randint(1, 9)
    room = max(0, x.untyped_storage().nbytes() // x.element_size() - x.storage_offset())  # the new part is left open

    def to_part(t: Tensor, o: Tensor) -> None:
        t[(slice(None),) * dim + (part,)] = scalar

    def by_index(t: Tensor, o: Tensor) -> None:
        t[torch.tensor([0, -1], device=t.device)] = scalar

    def by_out(t: Tensor, o: Tensor) -> None:
        torch.add(t, scalar, out=t)

    writes: list[Callable[[Tensor, Tensor], object]] = [
        lambda t, o: t.copy_(given.to(t.device)),
        lambda t, o: t.copy_(given),
        lambda t, o: t.add_(given.to(t.device)),
        lambda t, o: t.add_(scalar),
        lambda t, o: t.mul_(2),
        lambda t, o: t.fill_(scalar),
        lambda t, o: t.zero_(),
        lambda t, o: t.add_(o),
        lambda t, o: t.copy_(o),
        lambda t, o: t.clamp_(-20, 20),
        lambda t, o: t.masked_fill_(t.real > 3, scalar),
        lambda t, o: t.transpose_(0, -1),
        lambda t, o: t.squeeze_(),
        lambda t, o: t.unsqueeze_(0),
        lambda t, o: t.set_(o) if t.dtype == o.dtype else None,
        lambda t, o: t.resize_(min(scalar, room), 1),
        to_part,
        by_out,
    ]
    if x.numel() > 0:  # an index that is out of range is an error of values, which comes later
        writes += [lambda t, o: t.index_fill_(dim, torch.tensor([0], device=t.device), scalar), by_index]
    return r.choice(writes)


def base(r: random.Random) -> Tensor:
    shape = [r.randint(1, 4) for _ in range(r.randint(0, 4))]
    shape = shape if r.random() < 0.9 else [*shape, 0]
    dtype = r.choice([torch.float32, torch.float32, torch.float32, torch.int64, torch.complex64, torch.float64])
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


def same(on_cpu: list[Tensor], on_device: list[Tensor], what: str) -> None:
    for a, b in zip(on_cpu, on_device, strict=True):
        assert (a.shape, a.stride(), a.storage_offset(), a.dtype) == (
            b.shape,
            b.stride(),
            b.storage_offset(),
            b.dtype,
        ), what
        assert (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg()), what
        torch.testing.assert_close(b.cpu(), a, rtol=1e-5, atol=1e-4, equal_nan=True, msg=lambda m: f"{what}: {m}")


def outcome(f: Callable[..., object], *given: Tensor) -> tuple[object, type[Exception] | None]:
    try:
        return f(*given), None
    except (RuntimeError, IndexError, ValueError) as error:
        if "weft internal" in str(error):
            raise
        return None, type(error)


def run_program(seed: int, steps: int) -> int:
    """Returns how many steps did something."""
    r = random.Random(seed)
    on_cpu = [base(r) for _ in range(2)]
    on_device = [t.to("weft") for t in on_cpu]
    done = 0
    for step in range(steps):
        what = f"program {seed}, step {step}"
        at, other = r.randrange(len(on_cpu)), r.randrange(len(on_cpu))
        if r.random() < 0.55:
            f = r.choice(VIEWS)(r, on_cpu[at])
            if f is None:
                continue
            (a, refused), (b, refused_too) = outcome(f, on_cpu[at]), outcome(f, on_device[at])
            assert (refused is None) == (refused_too is None), f"{what}: {refused} {refused_too}"
            if refused is None and len(on_cpu) < 12:
                on_cpu.append(a)
                on_device.append(b)
        else:
            g = write(r, on_cpu[at], on_cpu[other])
            if is_unwritable(on_cpu[at], on_cpu[other]):
                continue
            _, refused = outcome(g, on_cpu[at], on_cpu[other])
            _, refused_too = outcome(g, on_device[at], on_device[other])
            assert (refused is None) == (refused_too is None), f"{what}: {refused} {refused_too}"
        done += 1
        if r.random() < 0.15:
            weft.sync()
        if r.random() < 0.15:
            same(on_cpu, on_device, what)
        if r.random() < 0.1 and len(on_cpu) > 2:
            drop = r.randrange(len(on_cpu))
            del on_cpu[drop], on_device[drop]
    same(on_cpu, on_device, f"program {seed}")
    return done


def is_unwritable(x: Tensor, other: Tensor) -> bool:
    """Whether the result of a write is undefined: parts of the memory overlap, and the CPU writes them in its own
    order."""
    if torch._debug_has_internal_overlap(x) == 0:
        return x.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() and other is not x
    return True


@pytest.mark.parametrize("share", range(5))
def test_random_programs(share: int) -> None:
    seeds = range(share * PROGRAMS // 5, (share + 1) * PROGRAMS // 5)
    assert sum(run_program(seed, STEPS) for seed in seeds) > 5 * len(seeds)
