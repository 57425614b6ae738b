"""`torch_xla.core.xla_model`: the device, steps, and operations between replicas, of which there is one."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import torch
from torch import Tensor

from weft import device as weft_device
from weft.compat.torch_xla import _steps
from weft.compat.torch_xla._data import with_tensors
from weft.compat.torch_xla._missing import missing

REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX = "sum", "mul", "and", "or", "min", "max"

# ---- the device


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """`torch.device("weft:0")`.

    Raises:
        IndexError: `n` is no device's number; there is one.
        NotImplementedError: `devkind` is another than CPU.
    """
    if n not in (None, 0):
        raise IndexError(f"Device index {n} out of range in {get_xla_supported_devices()}")
    if devkind not in (None, "CPU"):
        missing(f"device of kind {devkind}", "leave devkind out")()
    return _steps.the_device()


def get_xla_supported_devices(devkind: str | int | None = None, max_devices: int | None = None) -> list[str] | None:
    """`["weft:0"]`; None for another `devkind` than CPU. An integer as `devkind` counts as `max_devices`, as in
    releases of PyTorch/XLA without `devkind`."""
    if isinstance(devkind, int):
        devkind, max_devices = None, devkind
    if devkind not in (None, "CPU"):
        return None
    devices = [str(_steps.the_device())]
    return devices[:max_devices] if max_devices else devices


def xla_real_devices(devices: Sequence[torch.device | str] | None = None) -> list[str]:
    return ["CPU:0" for _ in (devices or ["weft:0"])]


def xla_device_hw(device: torch.device | str) -> str:
    return "CPU"


def xla_device_kind(device: torch.device | str | None = None) -> str:
    return "cpu"


def is_xla_tensor(tensor: Tensor) -> bool:
    """Whether the tensor is on the device."""
    return tensor.device.type == "weft"


def get_memory_info(device: torch.device | str | None = None) -> dict[str, int]:
    """`bytes_used` and `peak_bytes_used` by tensors of the device, `bytes_limit`: the machine's memory."""
    counts = weft_device.memory_stats()
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"bytes_used": counts["bytes"], "peak_bytes_used": counts["most_bytes"], "bytes_limit": limit}


def set_rng_state(seed: int, device: torch.device | str | None = None) -> None:
    """Seeds the device's generator, which is the CPU's."""
    torch.default_generator.manual_seed(seed)


@contextlib.contextmanager
def fork_rng(device: torch.device | str | None = None, enabled: bool = True) -> Iterator[None]:
    """Restores the state of the device's generator, which is the CPU's, after the context."""
    before = torch.get_rng_state() if enabled else None
    try:
        yield
    finally:
        if before is not None:
            torch.set_rng_state(before)


get_rng_state = missing("get_rng_state, a state that is one number", "use torch.get_rng_state() and set_rng_state()")

# ---- steps


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Runs what this thread has recorded, as one program, then what `add_step_closure` was given. The program has run
    when this function returns, whatever `wait` is."""
    _steps.end_step()


def wait_device_ops(devices: Sequence[str] = ()) -> None:
    """Runs what this thread has recorded. Nothing runs in the background."""
    weft_device.sync()


def unlazy(tensors: Sequence[Tensor]) -> None:
    """Runs what this thread has recorded, so that the tensors have values."""
    weft_device.sync()


def add_step_closure(closure: Callable[..., Any], args: Iterable[Any] = (), run_async: bool = False) -> None:
    """Has `closure(*args)` called when the step has run: in this thread, or with `run_async` in another, one after the
    other. What such a closure raises is raised at the end of the next step that has one."""
    given = tuple(args)
    _steps.at_end_of_step(lambda: closure(*given), run_async)


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: dict[str, Any] | None = None,
    groups: Any = None,
    pin_layout: bool = True,
) -> Any:
    """`optimizer.step(**optimizer_args)`; with `barrier`, the end of the step too. Returns what the optimizer does."""
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


# ---- one replica


def xrt_world_size(defval: int = 1) -> int:
    return 1


def get_ordinal(defval: int = 0) -> int:
    return 0


def get_local_ordinal(defval: int = 0) -> int:
    return 0


def is_master_ordinal(local: bool = True) -> bool:
    return True


def master_print(*args: Any, fd: IO[str] | None = None, local: bool = False, flush: bool = False) -> None:
    print(*args, file=fd or sys.stdout, flush=flush)


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """What all replicas bring: `[payload]`. The end of the step.

    Raises:
        TypeError: `payload` isn't bytes.
    """
    if not isinstance(payload, bytes):
        raise TypeError(f"`payload` must be bytes, not {type(payload)}")
    mark_step()
    return [payload]


def xla_rendezvous(payload: bytes = b"", ordinals: Sequence[int] | None = None, tag: str | None = None) -> list[bytes]:
    """As `rendezvous`."""
    return rendezvous(tag or "", payload)


def do_on_ordinals(target: Callable[..., Any], data: Any = (), ordinals: Iterable[int] = (0,)) -> Any:
    """`target(*data)` with the tensors of `data` on the CPU if 0 is among `ordinals`, then the end of the step. Returns
    what it returns, or None."""
    result = target(*with_tensors(data, is_xla_tensor, Tensor.cpu)) if 0 in ordinals else None
    rendezvous("torch_xla.core.xla_model.do_on_ordinals")
    return result


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """`reduce_fn` of the list of all replicas' data: here one item, a copy of `data` with its tensors on the CPU."""
    return reduce_fn([with_tensors(data, lambda tensor: True, lambda tensor: tensor.detach().cpu().clone())])


def all_reduce(reduce_type: str, inputs: Any, scale: float = 1.0, groups: Any = None, pin_layout: bool = True) -> Any:
    """With one replica as in PyTorch/XLA: a copy of a tensor, or the list itself, not scaled."""
    return inputs.clone() if isinstance(inputs, Tensor) else inputs


def all_gather(
    value: Tensor, dim: int = 0, groups: Any = None, output: Tensor | None = None, pin_layout: bool = True
) -> Tensor:
    """With one replica: a copy of `value`, or `output` with its values."""
    return value.clone() if output is None else output.copy_(value)


def reduce_gradients(optimizer: torch.optim.Optimizer, groups: Any = None, pin_layout: bool = True) -> None:
    """Nothing to do: one replica's gradients are reduced already."""


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Nothing to do: the one replica has the parameters."""


_REPLICAS = "drop the call, or use torch.distributed between processes of the CPU"
reduce_scatter = missing("reduce_scatter", _REPLICAS)
all_to_all = missing("all_to_all", _REPLICAS)
collective_permute = missing("collective_permute", _REPLICAS)
collective_broadcast = missing("collective_broadcast", _REPLICAS)
send = missing("send", _REPLICAS)
recv = missing("recv", _REPLICAS)
_PROGRAM = "WEFT_DUMP=folder writes every program, as docs/debugging.md says"
get_stablehlo = missing("get_stablehlo", _PROGRAM)
get_stablehlo_bytecode = missing("get_stablehlo_bytecode", _PROGRAM)

# ---- data


def save(data: Any, file_or_path: Any, master_only: bool = True, global_master: bool = False) -> None:
    """torch.save of `data` with its tensors on the CPU, wherever in it they are: in lists and dicts of any kind, in
    dataclasses and other objects."""
    torch.save(with_tensors(data, is_xla_tensor, Tensor.cpu), file_or_path)


def send_cpu_data_to_device(datas: Any, device: torch.device | str, input_sharding: Any = None) -> Any:
    """The data with its CPU tensors on the device, wherever in it they are: in lists and dicts of any kind, in
    dataclasses and other objects. The lengths of a PackedSequence stay on the CPU. A tensor gives a list of one.

    Raises:
        NotImplementedError: there is an `input_sharding`.
    """
    if input_sharding is not None:
        missing("sharding", "leave input_sharding out")()
    if isinstance(datas, Tensor):
        datas = [datas]
    return with_tensors(datas, lambda tensor: tensor.device.type == "cpu", lambda tensor: tensor.to(device))


class RateTracker:
    """How many of something come in a second: `add` counts, `rate` says it of the time since it was asked last,
    smoothed; `global_rate` of all the time."""

    def __init__(self, smooth_factor: float = 0.4) -> None:
        self._smooth, self._begin, self._last = smooth_factor, time.time(), time.time()
        self._all, self._since = 0.0, 0.0
        self._rate: float | None = None

    def add(self, count: float) -> None:
        self._all += count
        self._since += count

    def rate(self) -> float:
        now = time.time()
        if now <= self._last:
            return self._rate or 0.0
        rate = self._since / (now - self._last)
        if self._rate is not None:
            rate = (1 - self._smooth) * rate + self._smooth * self._rate
        self._last, self._since, self._rate = now, 0.0, rate
        return rate

    def global_rate(self) -> float:
        passed = time.time() - self._begin
        return self._all / passed if passed > 0 else 0.0
