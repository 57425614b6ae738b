// Reductions and products. f16 and bf16 accumulate in f32 and round once. In a step of a ragged scan the rows that the
// step does not have count as zeros.
#include <numeric>

#include "stablehlo/lowerings.h"

namespace weft::stablehlo::lowerings {
namespace {

/// The numbers first..last-1.
Sizes range(int64_t first, int64_t last) {
  Sizes numbers(static_cast<size_t>(last - first));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

void product(const Site& site, const ProductDims& dims) {
  const Tensor a = site.writer.zero_beyond(site.op.operands[0]), b = site.writer.zero_beyond(site.op.operands[1]);
  const DType dtype = site.type().dtype;
  site.done(site.emit().convert(site.emit().dot(a, b, dims, compute_type(a.type.dtype)), dtype));
}

}  // namespace

void reduce_sum(const Site& site) {
  Emitter& emit = site.emit();
  const DType dtype = site.type().dtype, sum = compute_type(dtype);
  const Tensor x = emit.convert(site.writer.zero_beyond(site.op.operands[0]), sum);
  const Tensor zero = emit.constant(0, {sum, {}});
  site.done(emit.convert(emit.reduce("add", x, zero, site.op.attr<Sizes>("dims")), dtype));
}

void reduce_max(const Site& site) {
  Emitter& emit = site.emit();
  Tensor x = site.operand(0);
  if (const StepRows* rows = site.writer.step_rows_of(site.op.operands[0]))
    x = site.writer.masked(*rows, x, emit.least(x.type));
  site.done(emit.reduce("maximum", x, emit.least({x.type.dtype, {}}), site.op.attr<Sizes>("dims")));
}

void matmul(const Site& site) {
  const int64_t last = site.operand(0).type.rank() - 1;
  product(site, {{}, {}, {last}, {site.op.attr_or("transpose_b", false) ? 1 : 0}});
}

/// The weights' rows are used as they lie: `groups` and `width` don't change the product.
void matmul_rows(const Site& site) {
  const Tensor a = site.writer.zero_beyond(site.op.operands[0]), rows = site.operand(1);
  const Tensor weights = site.emit().convert(rows, a.type.dtype);
  site.done(site.emit().dot(a, weights, {{}, {}, {a.type.rank() - 1}, {1}}, a.type.dtype));
}

void outer(const Site& site) {
  const Sizes leading = range(0, site.operand(0).type.rank() - 1);
  product(site, {{}, {}, leading, leading});
}

void batch_matmul(const Site& site) {
  const int64_t rank = site.operand(0).type.rank();
  const Sizes leading = range(0, rank - 2);
  const int64_t k_of_a = site.op.attr_or("transpose_a", false) ? rank - 2 : rank - 1;
  const int64_t k_of_b = site.op.attr_or("transpose_b", false) ? rank - 1 : rank - 2;
  product(site, {leading, leading, {k_of_a}, {k_of_b}});
}

}  // namespace weft::stablehlo::lowerings
