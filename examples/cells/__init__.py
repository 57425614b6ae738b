"""Recurrences from the literature, each written as one step in plain PyTorch and run by weft.scan."""
