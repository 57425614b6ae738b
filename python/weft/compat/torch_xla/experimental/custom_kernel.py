"""`torch_xla.experimental.custom_kernel`: kernels for TPUs, which a CPU has not, and what needs none."""

from __future__ import annotations

import torch
from torch import Tensor

from weft.compat.torch_xla._missing import missing

_ATTENTION = "use torch.nn.functional.scaled_dot_product_attention"
flash_attention = missing("flash_attention in Pallas", _ATTENTION)
paged_attention = missing("paged_attention in Pallas", _ATTENTION)
ragged_paged_attention = missing("ragged_paged_attention in Pallas", _ATTENTION)
make_kernel_from_pallas = missing("make_kernel_from_pallas", "write the kernel in PyTorch, which is compiled")
jax_import_guard = missing("jax_import_guard", "drop the call")


def repeat_with_fixed_output_size(input: Tensor, repeats: Tensor, total_repeat_length: int) -> Tensor:
    """`torch.repeat_interleave(input, repeats)` of `input` [N] and whole numbers `repeats` [N], cut off at
    `total_repeat_length` or filled up with the last element of `input`. The length is known, so that no step is cut."""
    if input.dim() != 1 or input.shape != repeats.shape:
        raise ValueError(f"input and repeats should be [N], got: {list(input.shape)} and {list(repeats.shape)}")
    ends = torch.cumsum(repeats, 0)
    places = torch.arange(total_repeat_length, device=input.device, dtype=ends.dtype)
    which = (places.unsqueeze(1) >= ends).sum(1).clamp(max=input.shape[0] - 1)
    return input[which]
