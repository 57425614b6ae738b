#include "decompose/decompose.h"

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

const c10::KernelFunction* find(const c10::OperatorName& name) { return kernels.find(name); }

}  // namespace weft::decompose
