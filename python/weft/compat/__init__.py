"""Interfaces of other packages: PyTorch/XLA's on the device "weft", and Keras's recurrent layers on Weft."""
