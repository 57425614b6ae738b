"""Functions of tensors as programs: recording what they do, tracing them for all sizes, finding them again."""
