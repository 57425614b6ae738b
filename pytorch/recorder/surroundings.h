#pragma once

#include "operator/aten.h"

namespace weft::recorder {

/// Whether the tensors hold numbers on the CPU, and no mode, transform, trace or recording in this thread sees what is
/// done.
bool are_seen_by_none(const std::vector<at::Tensor>& tensors);

}  // namespace weft::recorder
