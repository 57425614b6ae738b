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

}  // namespace

bool holds_for_complex(const c10::OperatorName& name) {
  constexpr std::string_view kThose[] = {
      "aten::addcmul", "aten::addcdiv",        "aten::addmv",            "aten::addr",
      "aten::addbmm",  "aten::split",          "aten::split_with_sizes", "aten::unsafe_split",
      "aten::unbind",  "aten::diagonal",       "aten::diag_embed",       "aten::unsafe_split_with_sizes",
      "aten::unfold",  "aten::linear",         "aten::trace",            "aten::_trilinear",
  };
  return std::ranges::find(kThose, name.name) != std::end(kThose) && find(name) != nullptr;
}

const c10::KernelFunction* find(const c10::OperatorName& name) { return kernels.find(name); }

}  // namespace weft::decompose
