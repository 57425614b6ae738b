#pragma once

#include "device/batch.h"
#include "device/programs.h"

namespace weft::device {

struct ReplayedProgram {
  std::string text;  ///< its inputs: the batch's leaves, the free numbers as double[], then the constants
  std::vector<at::Tensor> constants;
};

/// The program of a batch: its operations, done again to tensors that hold nothing (pytorch/recorder), lowered as those
/// of a step are (pytorch/lowering). `free`: which of its numbers are inputs, counted as they stand in its record.
///
/// Throws recorder::UnsupportedError and others where there is no such program.
ReplayedProgram replayed_program(const Batch& batch, const std::vector<size_t>& free, const Decompose& decompose);

/// The operation's arguments with tensors in the place of operands; nothing is undefined but what was.
torch::jit::Stack stack_of(const Node& node, const std::function<at::Tensor(const Value&)>& tensor_of);

}  // namespace weft::device
