"""PyTorch/XLA's interface on the device "weft": `import weft.compat.torch_xla as torch_xla`.

Programs that were written for a lazy device find it here under the names that they know: `core.xla_model`, `sync`,
`compile`, `experimental.scan`, `debug.metrics`, loaders, amp. Tensors are on `torch.device("weft")`. What one CPU
device has no counterpart for raises NotImplementedError, which says what to do instead. docs/from-torch-xla.md has the
list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from weft.compat.torch_xla import _openxla, amp, core, debug, distributed, experimental, runtime, stablehlo, utils
from weft.compat.torch_xla import runtime as xr
from weft.compat.torch_xla._compile import compile, set_custom_compile_options, step
from weft.compat.torch_xla._steps import end_step, the_device
from weft.compat.torch_xla.core import xla_model
from weft.compat.torch_xla.core import xla_model as xm
from weft.compat.torch_xla.distributed import xla_multiprocessing
from weft.compat.torch_xla.distributed import xla_multiprocessing as xmp
from weft.compat.torch_xla.stablehlo import save_as_stablehlo, save_torch_model_as_stablehlo

__all__ = [
    "__version__",
    "amp",
    "compile",
    "core",
    "debug",
    "device",
    "device_count",
    "devices",
    "distributed",
    "experimental",
    "launch",
    "manual_seed",
    "real_devices",
    "runtime",
    "save_as_stablehlo",
    "save_torch_model_as_stablehlo",
    "set_custom_compile_options",
    "stablehlo",
    "step",
    "sync",
    "utils",
    "xm",
    "xmp",
    "xr",
]

#: The version of PyTorch, by which PyTorch/XLA's releases are numbered.
__version__: str = str(torch.__version__).split("+")[0]

_openxla.register()


def device(index: int | None = None) -> torch.device:
    """`torch.device("weft:0")`.

    Raises:
        IndexError: `index` is no device's number; there is one.
    """
    return xla_model.xla_device(index)


def devices() -> list[torch.device]:
    """The one device there is."""
    return [the_device()]


def real_devices() -> list[str]:
    return ["CPU:0"]


def device_count() -> int:
    return 1


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Runs what this thread has recorded, as one program, then what `core.xla_model.add_step_closure` was given. It
    has run when this returns, whatever `wait` is."""
    end_step()


def manual_seed(seed: int, device: torch.device | str | None = None) -> None:
    """Seeds the device's generator, which is the CPU's."""
    xla_model.set_rng_state(seed, device)


def launch(
    fn: Callable[..., Any],
    args: Iterable[Any] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """`fn(0, *args)`, in this process."""
    xla_multiprocessing.spawn(fn, args)
