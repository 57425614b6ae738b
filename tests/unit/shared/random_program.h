#pragma once

#include <cstdint>
#include <vector>

#include "interpreter/array.h"
#include "ir/program.h"

namespace weft::testing {

/// Options of random programs.
struct RandomOptions {
  int ops = 12;           ///< about as many in the body and in each region
  int scan_depth = 1;     ///< scans inside scans, at most
  bool mixed = true;      ///< other dtypes than `dtype` too
  bool ragged = false;    ///< with packed sequences: some scans in the body are ragged, over the symbols T, B and N
  bool row_wise = false;  ///< ragged scans only: nothing in them mixes rows, so that they have machine code
  bool symbolic_bounds = false;  ///< slices, pads and concatenations of dims that are no numbers
  bool loops = true;             ///< whiles, if mixed: the values that these make have no gradients
  DType dtype = DType::kF32;
};

/// A verified program over the symbols T and B, and N if it may be ragged. Its values stay of moderate size (no exp, no
/// division), so that results of different orders of summation can be compared.
ir::Program random_program(uint64_t seed, const RandomOptions& options = {});

/// Inputs of the sizes that the bindings give: normal numbers for floating types, 0 or 1 for the others, true as
/// several bytes for bool, batch sizes that fit for ragged scans.
std::vector<interpreter::Array> random_inputs(const ir::Program& program, const ir::Bindings& bindings, uint64_t seed);

}  // namespace weft::testing
