#include "decompose/decompose.h"

namespace weft::decompose {
namespace {

Table filled() {
  Table table;
  add_activations(table);
  add_elementwise(table);
  add_movement(table);
  add_products(table);
  add_reductions(table);
  add_running_totals(table);
  return table;
}

const Table& table() {
  static const Table table = filled();
  return table;
}

[[maybe_unused]] const auto& made_at_load = table();

}  // namespace

const c10::KernelFunction* find(const c10::OperatorName& name) { return table().find(name); }

}  // namespace weft::decompose
