#pragma once

#include <compare>

#include "override/cells.h"

namespace weft::override_kernels {

/// A configuration of torch.ao's dynamically quantized modules. Weights have 8 bits. Their left operands are rounded to
/// 8 bits, with one scale for all rows of a product.
struct DynamicConfig {
  Cell cell = Cell::kGru;
  bool is_step = false;  ///< a cell; else layers of padded sequences
  bool bidirectional = false;
  int64_t layers = 1, input_size = 1, hidden_size = 1;
  int64_t most = 127;             ///< the largest rounded number: 127, or 255 where all 8 bits are used
  std::vector<bool> ih_biases{};  ///< whether there are biases, by layer and direction
  std::vector<bool> hh_biases{};

  int64_t directions() const { return bidirectional ? 2 : 1; }
  auto operator<=>(const DynamicConfig&) const = default;
};

/// (x [T,B,I], h0 [L*D,B,H], lstm: c0, then for each layer and direction w_ih i8, its scales f32 [rows], with a bias
/// b_ih, and the same of w_hh) -> (y, hn, lstm: cn); a step x [B,I], h [B,H] -> h', lstm: c'. The whole sequence that a
/// layer reads has one scale; so have all rows of h at a step.
ir::Program dynamic_program(const DynamicConfig& config);

}  // namespace weft::override_kernels
