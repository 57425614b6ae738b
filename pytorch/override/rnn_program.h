#pragma once

#include <compare>
#include <optional>

#include "override/variants.h"

namespace weft::override_kernels {

/// The configuration of one program: everything about an nn.GRU, nn.LSTM or nn.RNN, or about one step of a cell, apart
/// from T and B.
struct RnnConfig {
  /// A padded sequence [T,B,I]; the rows of a packed one [N,I]; or a single step [B,I], as nn.GRUCell and its kin take.
  enum class Form : uint8_t { kPadded, kPacked, kStep };

  Cell cell = Cell::kGru;
  Form form = Form::kPadded;
  bool biases = true, bidirectional = false;
  int64_t layers = 1, input_size = 1, hidden_size = 1;
  int64_t proj_size = 0;  ///< size of h where an LSTM projects it, else 0

  /// Element types of the inputs and of the results. Values between are f64 if x is, else f32.
  struct DTypes {
    DType x = DType::kF32, h = DType::kF32, c = DType::kF32, weights = DType::kF32;
    DType y = DType::kF32, last_h = DType::kF32, last_c = DType::kF32;
    /// The type to which autocast rounds x, the weights and each layer's input.
    std::optional<DType> rounding;

    auto operator<=>(const DTypes&) const = default;
  } dtypes;
  bool bytes = false;   ///< weights are i8, each followed by a scale a row, f32
  CellVariant variant;  ///< options of weft.nn; restarts are for padded sequences only

  int64_t directions() const { return bidirectional ? 2 : 1; }
  /// Size of h.
  int64_t output_size() const { return proj_size > 0 ? proj_size : hidden_size; }
  /// Parameters of one layer and direction: w_ih, w_hh, with biases b_ih, b_hh, with a projection w_hr, and a variant's
  /// own parameters. With bytes a scale follows each weight.
  int64_t params_per_direction() const {
    auto more = VariantWeights::list(cell, variant, hidden_size, biases).size();
    return (bytes ? 2 : 1) * (2 + (proj_size > 0 ? 1 : 0)) + (biases ? 2 : 0) + static_cast<int64_t>(more);
  }
  /// Columns of x for a layer.
  int64_t layer_input_size(int64_t layer) const { return layer == 0 ? input_size : directions() * output_size(); }

  auto operator<=>(const RnnConfig&) const = default;
};

/// The stack of layers as a program: (x, packed: batch_sizes i64[T], h0 [L*D,B,H], lstm: c0, then for each layer and
/// direction w_ih, w_hh and, with biases, b_ih, b_hh and, with a projection, w_hr) -> (y, hn, lstm: cn). D directions,
/// the second one backwards, their outputs side by side in y. A single step has h [B,H] and returns h', c' alone. What
/// a variant reads beside its parameters comes last, by layer and direction: restarts bool[T,B], the recurrent mask
/// [B, size of h], then which h and which c to keep, bool[T,B,size], packed bool[N,size].
/// The input projection is part of the step: the pass hoist moves it out of the loop.
ir::Program rnn_program(const RnnConfig& config);

}  // namespace weft::override_kernels
