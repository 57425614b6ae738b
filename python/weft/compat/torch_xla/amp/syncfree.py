"""`torch_xla.amp.syncfree`: torch.optim's, which a step records like anything else."""

from torch.optim import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW"]
