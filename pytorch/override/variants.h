#pragma once

#include <array>
#include <compare>
#include <string>
#include <vector>

#include "override/cells.h"

namespace weft::override_kernels {

/// How a step differs from PyTorch's: the options of weft.nn, whose docstrings give formulas and sources.
struct CellVariant {
  enum class Coupling : uint8_t { kNone, kInput, kForget };  ///< f = 1 - i, i = 1 - f

  bool reset_after = true;
  Coupling coupling = Coupling::kNone;
  bool peepholes = false, layer_norm = false;
  double clip = 0;                     ///< of c, or of h where the cell has no c; 0 for none
  std::array<double, 2> zoneout{};     ///< of h, c: the old state's share, if there is no mask
  std::array<bool, 2> zoneout_mask{};  ///< of h, c: a mask chooses between the old state and the new
  bool recurrent_mask = false;         ///< h is masked before the recurrent product
  bool restarts = false;               ///< the carry may restart from zeros
  /// sigmoid, tanh, relu, hard_sigmoid, identity, or the text of a program of one elementwise function. Empty: the
  /// cell's own.
  std::string gate_activation, activation;

  /// Whether the variant has no options: then its program is that of PyTorch's module.
  bool is_plain() const { return *this == CellVariant{}; }
  auto operator<=>(const CellVariant&) const = default;
};

/// The parameters of one layer and direction that PyTorch's modules lack, in the program's order. A coupled gate isn't
/// computed, so it has no peephole.
struct VariantWeights {
  ir::ValueId p_i = ir::kNoValue, p_f = ir::kNoValue, p_o = ir::kNoValue;  ///< [H]
  ir::ValueId ln_ih = ir::kNoValue, ln_hh = ir::kNoValue;                  ///< [gates*H]
  ir::ValueId ln_c = ir::kNoValue, ln_c_bias = ir::kNoValue;               ///< [H]

  /// The parameters that such a cell has, by name and size; `gates` is gates_of(cell).
  struct Parameter {
    const char* name;
    ir::ValueId VariantWeights::* member;
    int64_t size;
  };
  static std::vector<Parameter> list(Cell cell, const CellVariant& variant, int64_t hidden_size, bool biases);
};

/// The inputs of a variant's step beside x; kNoValue for an input that the variant lacks.
struct StepMasks {
  ir::ValueId restart = ir::kNoValue;                           ///< bool[B]: begin from zeros
  ir::ValueId recurrent = ir::kNoValue;                         ///< [B, size of h]: a factor
  std::array<ir::ValueId, 2> keep{ir::kNoValue, ir::kNoValue};  ///< bool[B, size of h], [B,H]: keep the old h, c
};

/// cell_step of a variant. All values but the masks are of one floating dtype, f32 or f64, which texts of activations
/// must have too.
std::vector<ir::ValueId> variant_step(ir::Builder& body, Cell cell, const CellVariant& variant,
                                      const CellWeights& weights, const VariantWeights& more, const StepMasks& masks,
                                      ir::ValueId x, std::span<const ir::ValueId> carry);

}  // namespace weft::override_kernels
