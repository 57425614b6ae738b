"""`torch_xla.utils`."""

from weft.compat.torch_xla.utils import checkpoint, serialization, utils

__all__ = ["checkpoint", "serialization", "utils"]
