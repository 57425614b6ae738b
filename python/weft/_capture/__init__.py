"""Functions of tensors as programs: recording their operations, tracing them for all sizes, finding them again."""
