#pragma once

namespace weft::device {

/// Registers aten::gru and its kin, and single cells, for the device's keys.
void register_recurrent_modules();

}  // namespace weft::device
