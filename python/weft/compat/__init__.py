"""Interfaces of other packages, on the device "weft"."""
