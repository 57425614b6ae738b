#include "decompose/decompose.h"

#include <algorithm>
#include <string_view>

namespace weft::decompose {
namespace {

Table filled() {
  Table table;
  add_activations(table);
  add_batch_norm(table);
  add_elementwise(table);
  add_losses(table);
  add_movement(table);
  add_products(table);
  add_reductions(table);
  add_running_totals(table);
  return table;
}

/// Made at load (base/fork.h), never destroyed.
const Table& kernels = *new Table(filled());

Table complex_ones() {
  Table table;
  add_complex(table);
  return table;
}

const Table& complex_kernels = *new Table(complex_ones());

/// Decompositions into sums, products and movements, which hold for complex numbers too.
bool is_algebraic(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "aten::addcmul",  "aten::addcdiv",      "aten::addmv",
      "aten::addr",     "aten::addbmm",       "aten::_trilinear",
      "aten::linear",   "aten::split",        "aten::split_with_sizes",
      "aten::unbind",   "aten::unsafe_split", "aten::unsafe_split_with_sizes",
      "aten::diagonal", "aten::diag_embed",   "aten::diagonal_scatter",
      "aten::unfold",   "aten::trace",        "aten::linalg_cross",
      "aten::cumsum",   "aten::cumprod",      "aten::lerp",
      "aten::take",
  };
  return std::ranges::find(kNames, name) != std::end(kNames);
}

}  // namespace

const c10::KernelFunction* find_complex(const c10::OperatorName& name) {
  if (const auto* kernel = complex_kernels.find(name)) return kernel;
  return is_algebraic(name.name) ? find(name) : nullptr;
}

const c10::KernelFunction* find(const c10::OperatorName& name) { return kernels.find(name); }

}  // namespace weft::decompose
