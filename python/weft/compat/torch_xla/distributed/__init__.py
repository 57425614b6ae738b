"""`torch_xla.distributed`, for one replica."""

from weft.compat.torch_xla.distributed import fsdp, parallel_loader, spmd, xla_multiprocessing

__all__ = ["fsdp", "parallel_loader", "spmd", "xla_multiprocessing"]
