#pragma once

#include "operator/aten.h"

namespace weft::record {

/// A kernel of the operation's schema for Meta tensors, in C++; nullptr where there is none here.
const c10::KernelFunction* meta_kernel(const c10::OperatorName& name);

}  // namespace weft::record
