"""`torch_xla.experimental.gru`: PyTorch's layer, which is compiled as one loop."""

from torch.nn import GRU

__all__ = ["GRU"]
