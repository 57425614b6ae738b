"""`torch_xla.utils.checkpoint`: PyTorch's."""

from torch.utils.checkpoint import checkpoint

__all__ = ["checkpoint"]
