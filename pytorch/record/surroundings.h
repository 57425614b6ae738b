#pragma once

#include "operator/aten.h"

namespace weft::record {

/// Whether the tensors hold numbers on the CPU or on the device, and no mode, transform, trace or recording in this
/// thread sees operations on them.
bool are_seen_by_none(const std::vector<at::Tensor>& tensors);

/// Whether a callback of this thread sees each node of autograd's graph as it is made
/// (torch.autograd.graph.node_creation_hook, since 2.14), and may then change the node's derivative.
bool are_nodes_watched();

}  // namespace weft::record
