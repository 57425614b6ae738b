"""`torch_xla.debug`."""

from weft.compat.torch_xla.debug import metrics, profiler

__all__ = ["metrics", "profiler"]
