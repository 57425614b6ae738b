"""`torch_xla.experimental.custom_kernel`: kernels for TPUs, which a CPU can't run."""

from __future__ import annotations

from weft.compat.torch_xla._missing import missing

_ATTENTION = "use torch.nn.functional.scaled_dot_product_attention"
flash_attention = missing("flash_attention in Pallas", _ATTENTION)
paged_attention = missing("paged_attention in Pallas", _ATTENTION)
ragged_paged_attention = missing("ragged_paged_attention in Pallas", _ATTENTION)
make_kernel_from_pallas = missing("make_kernel_from_pallas", "write the kernel in PyTorch, which is compiled")
jax_import_guard = missing("jax_import_guard", "drop the call")
