"""`torch_xla.core`."""

from weft.compat.torch_xla.core import xla_model

__all__ = ["xla_model"]
