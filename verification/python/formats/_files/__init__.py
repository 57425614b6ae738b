"""Kinds of files, whatever framework wrote them: what a file is, and its tensors by name."""
