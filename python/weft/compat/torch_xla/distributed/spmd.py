"""`torch_xla.distributed.spmd`: several devices as one, of which there is one."""

from __future__ import annotations

from weft.compat.torch_xla._missing import missing

_INSTEAD = "drop the call; all of the CPU's cores work on one program without it"
Mesh = missing("Mesh", _INSTEAD)
HybridMesh = missing("HybridMesh", _INSTEAD)
ShardingSpec = missing("ShardingSpec", _INSTEAD)
mark_sharding = missing("mark_sharding", _INSTEAD)
clear_sharding = missing("clear_sharding", _INSTEAD)
set_global_mesh = missing("set_global_mesh", _INSTEAD)
get_global_mesh = missing("get_global_mesh", _INSTEAD)
enable_manual_sharding = missing("enable_manual_sharding", _INSTEAD)
xla_patched_nn_linear_forward = missing("xla_patched_nn_linear_forward", _INSTEAD)
