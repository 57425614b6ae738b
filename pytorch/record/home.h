#pragma once

#include <c10/core/Device.h>

namespace weft::record {

/// Whether weft::call takes tensors of the device: the CPU, and "weft" where PrivateUse1 is this and not another
/// package's.
bool is_at_home(c10::Device device);

}  // namespace weft::record
