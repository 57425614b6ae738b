"""The device "weft": what PyTorch asks a device's Python module for."""
