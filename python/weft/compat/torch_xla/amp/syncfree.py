"""`torch_xla.amp.syncfree`: the optimizers of torch.optim, whose steps are recorded like other operations."""

from torch.optim import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW"]
