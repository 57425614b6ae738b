#pragma once

#include "device/kernels/operators.h"

namespace weft::device {

/// aten::_pack_padded_sequence. PyTorch's own implementation takes a slice for each length, so that each batch of
/// sequences would have another record. Here the packed rows are chosen by a tensor that has their indices.
void pack(const Operator& op, torch::jit::Stack& stack);

/// Registers aten::gru and its kin, and single cells, for the device's keys.
void register_recurrent_modules();

}  // namespace weft::device
