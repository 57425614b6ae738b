#pragma once

#include <functional>
#include <optional>
#include <stdexcept>

#include "device/graph/batch.h"
#include "operator/program_table.h"

namespace weft::device {

/// A program that computes a batch's outputs.
struct BatchProgram {
  torch_operator::ProgramRef program;
  std::vector<at::Tensor> inputs;  ///< the batch's leaves, then the free numbers, then constants
};

/// The program for batches with this batch's record. None if the batch is to run one by one: at the first sight of its
/// record, and if there is no program for it.
std::optional<BatchProgram> find_program(const Batch& batch);

/// Forgets all programs, whatever their state.
void forget_programs();

/// Sets how often a record must have been seen when it is compiled: 2 by default.
void set_compile_at(int64_t sight);

/// PyTorch's decompositions, which are in Python (programs::Callbacks::decompose).
using Decompose = std::function<std::optional<torch::jit::Stack>(const c10::OperatorHandle&, const torch::jit::Stack&)>;
void set_decompose(Decompose decompose);

/// Counts since the process began.
struct ProgramCounts {
  int64_t programs = 0;   ///< compiled
  int64_t records = 0;    ///< different records seen
  int64_t widenings = 0;  ///< attempts at one program for all sizes, from two records
  int64_t compiled_batches = 0, plain_batches = 0;
  int64_t kept = 0;
};
ProgramCounts program_counts();

}  // namespace weft::device
