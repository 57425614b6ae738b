#pragma once

#include "operator/aten.h"

namespace weft::recorder {

class Recording;

/// Whether PyTorch has run the recording's operations before a program of them would be found and called, if they run
/// but once. To find the program the function is run and its operations are written down, which takes what running them
/// on a few numbers does: what a program saves is memory traffic between operations, and the packing of weights.
bool is_little_work(const Recording& recording);

/// Whether the tensors hold numbers on the CPU, and no mode, transform or trace in this thread sees what is done.
bool are_seen_by_none(const std::vector<at::Tensor>& tensors);

}  // namespace weft::recorder
