"""`torch_xla.experimental`."""

from weft.compat.torch_xla._missing import missing
from weft.compat.torch_xla.experimental import assume_pure, custom_kernel, gradient_accumulation, scan, scan_layers

__all__ = [
    "assume_pure",
    "custom_kernel",
    "eager_mode",
    "eager_mode_context",
    "gradient_accumulation",
    "scan",
    "scan_layers",
]

eager_mode = missing("eager mode", "drop the call, or compute on the CPU")
eager_mode_context = missing("eager mode", "drop the call, or compute on the CPU")
