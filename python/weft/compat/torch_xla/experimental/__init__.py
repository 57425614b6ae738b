"""`torch_xla.experimental`."""

from weft.compat.torch_xla._missing import missing
from weft.compat.torch_xla.experimental import custom_kernel, scan, scan_layers

__all__ = ["custom_kernel", "eager_mode", "scan", "scan_layers"]

eager_mode = missing("eager mode", "drop the call, or compute on the CPU")
