#pragma once

#include <cstdint>

#include "ir/program.h"

namespace weft::testing {

/// Options of random wide steps.
struct WideOptions {
  bool products = true;  ///< with matrix products, so that steps need other columns than their own
  bool ragged = false;   ///< over packed sequences
  bool nested = false;   ///< with a scan within the step, so that stages are run step by step
  DType dtype = DType::kF32;
};

/// A verified program of one scan over the symbols T and B (and N) whose rows are wide enough for several threads to
/// share their columns: a step of elementwise ops, reductions, products, and copies of rows, with one to three carries
/// of whole rows or of a number a row, and ys of either kind.
ir::Program random_wide_step(uint64_t seed, const WideOptions& options = {});

}  // namespace weft::testing
