"""Interfaces of other packages: PyTorch/XLA's, on the device "weft"; what recurrent layers of Keras run on."""
