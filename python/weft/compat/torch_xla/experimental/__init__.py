"""`torch_xla.experimental`."""

from weft.compat.torch_xla.experimental import (
    assume_pure,
    callback,
    custom_kernel,
    eager,
    fori_loop,
    gradient_accumulation,
    gru,
    scan,
    scan_layers,
)
from weft.compat.torch_xla.experimental.eager import eager_mode, eager_mode_context, is_eager_mode

__all__ = [
    "assume_pure",
    "callback",
    "custom_kernel",
    "eager",
    "eager_mode",
    "eager_mode_context",
    "fori_loop",
    "gradient_accumulation",
    "gru",
    "is_eager_mode",
    "scan",
    "scan_layers",
]
