#pragma once

#include "device/graph/batch.h"
#include "device/run/programs.h"

namespace weft::device {

struct ReplayedProgram {
  ir::Program program;  ///< its inputs: the batch's leaves, the free numbers as double[], then the constants
  std::vector<at::Tensor> constants;
};

/// A number among the arguments of a batch's operations.
struct NumberPlace {
  size_t node;
  size_t ordinal;  ///< among the numbers of this node,
  size_t count;    ///< of which there are so many
};

/// The words of a batch's record at two samples of the symbols' values, and the SizeFit that knows these symbols.
struct Samples {
  std::vector<int64_t> first, second;
  record::SizeFit& fit;
};

/// The program of a batch. The batch's operations are repeated on tensors without data (pytorch/record), and become a
/// program in the same way as the operations of a step (pytorch/programs). `free`: which of the batch's numbers are
/// inputs.
///
/// `samples`: without them the program is for the batch's own sizes.
///
/// Throws record::UnsupportedError and others where there is no such program; programs::Mismatch where the results of
/// operations have other sizes than the samples say.
ReplayedProgram replayed_program(const Batch& batch, const std::vector<NumberPlace>& free, const Decompose& decompose,
                                 const Samples* samples = nullptr);

/// The operation's arguments with tensors in place of operands. An argument is undefined only if it was so when
/// recorded.
torch::jit::Stack stack_of(const Node& node, const std::vector<c10::IValue>& arguments,
                           const std::function<at::Tensor(const Value&)>& tensor_of);

/// The results of `call` on the node's arguments, in the order of Node::results: first the results that are no
/// arguments, then copies of the tensors that it writes, after the write.
std::vector<at::Tensor> results_of(const Node& node, torch::jit::Stack stack,
                                   const std::function<void(torch::jit::Stack&)>& call);

}  // namespace weft::device
