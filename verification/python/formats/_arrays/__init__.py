"""Frameworks whose files are nothing but named arrays: Flax, Haiku, Equinox, MLX."""
