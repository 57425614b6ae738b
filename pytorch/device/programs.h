#pragma once

#include <functional>
#include <optional>
#include <stdexcept>

#include "device/batch.h"
#include "operator/program_table.h"

namespace weft::device {

/// A program that computes a batch's outputs.
struct BatchProgram {
  torch_operator::ProgramRef program;
  std::vector<at::Tensor> inputs;  ///< the batch's leaves, then numbers that differ from batch to batch, then constants
};

/// The program of batches with this batch's record. None if it runs one by one: the first time
/// that it is seen, and where there is no program for it.
std::optional<BatchProgram> find_program(const Batch& batch);

/// Forgets all programs, in whatever state they are.
void forget_programs();

/// How often a record must have been seen before it is compiled: 2, unless set otherwise.
void set_compile_at(int64_t sight);

/// PyTorch's decompositions, which are in Python (programs::Callbacks::decompose).
using Decompose = std::function<std::optional<torch::jit::Stack>(const c10::OperatorHandle&, const torch::jit::Stack&)>;
void set_decompose(Decompose decompose);

/// Since the process began.
struct ProgramCounts {
  int64_t programs = 0;   ///< compiled
  int64_t records = 0;    ///< different ones
  int64_t widenings = 0;  ///< attempts at a program for all sizes of two records
  int64_t compiled_batches = 0, plain_batches = 0;
  int64_t kept = 0;
};
ProgramCounts program_counts();

}  // namespace weft::device
