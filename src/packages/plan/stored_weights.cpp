#include "packages/plan/stored_weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace weft::packages {
namespace {

using interpreter::Array;
using ir::Op;

}  // namespace

StoredWeights::StoredWeights(const Bound& step, DType dtype) : step_(step), dtype_(dtype) {
  internal_check(step.activations() == DType::kF32 || dtype == DType::kI8, "activations of i8 take weights of i8");
  const bool is_narrow = dtype != DType::kF32;
  internal_check(!is_narrow || dtype == DType::kI8 || is_half(dtype), "weights are not stored as {}", name_of(dtype));
  for (const Op& op : step.program().body.ops) {
    if (!is_product(step, op)) continue;
    const DType given = step.program().type(op.results[0]).dtype;
    const std::vector<int64_t> sizes = sizes_of(step.program(), op.operands[1]);
    count_ += sizes[0] * sizes[1];
    bytes_ += sizes[0] * sizes[1] * size_of(is_narrow ? dtype : given);
    if (!is_narrow) continue;
    check(given == DType::kF32,
          "weft.package: quantize='{}' stores weights of float32, but a product of the step has weights [{}, {}] of "
          "float64: give it a model of float32 (model.float()), or leave quantize out",
          argument(), sizes[0], sizes[1]);
    const Narrow& made = narrow_[op.results[0]] = round(op);
    bytes_ += static_cast<int64_t>(made.scales.size() * sizeof(float));
  }
  check(!is_narrow || !narrow_.empty(),
        "weft.package: quantize='{}' stores the weights of products narrow, but the step has no product by constant "
        "weights of float32: leave quantize out",
        argument());
}

/// What the caller of weft.package gave as `quantize`.
std::string_view StoredWeights::argument() const {
  if (step_.activations() == DType::kI8) return "int8-dynamic";
  return dtype_ == DType::kI8 ? "int8" : dtype_ == DType::kBF16 ? "bfloat16" : "float16";
}

double StoredWeights::given(const Op& product, int64_t row, int64_t column) const {
  const bool transposed = product.attr_or<bool>("transpose_b", false);
  return step_.element(product.operands[1], transposed ? std::vector{column, row} : std::vector{row, column});
}

StoredWeights::Narrow StoredWeights::round(const Op& product) const {
  const std::vector<int64_t> sizes = sizes_of(step_.program(), product.operands[1]);
  const bool transposed = product.attr_or<bool>("transpose_b", false);
  Narrow narrow;
  narrow.rows = sizes[transposed ? 1 : 0];
  narrow.columns = sizes[transposed ? 0 : 1];
  for (int64_t row = 0; row < narrow.rows; ++row)
    for (int64_t column = 0; column < narrow.columns; ++column) {
      const double weight = narrow.elements.emplace_back(given(product, row, column));
      check(std::isfinite(weight),
            "weft.package: quantize='{}': a product of the step has weights [{}, {}] with elements that are not finite",
            argument(), narrow.rows, narrow.columns);
    }
  if (dtype_ == DType::kI8) {
    round_to_bytes(narrow);
    return narrow;
  }
  const std::vector<double> before = narrow.elements;
  narrow.elements = Array::of(dtype_, {narrow.rows, narrow.columns}, before).to_doubles();
  for (size_t i = 0; i < before.size(); ++i)
    check(std::isfinite(narrow.elements[i]),
          "weft.package: quantize='{}': a product of the step has a weight of {}, which is more than {} holds: {}",
          argument(), before[i], argument(),
          dtype_ == DType::kF16 ? "take bfloat16, or scale the layer" : "scale the layer");
  return narrow;
}

/// Computes in f32, as weft.quantize does.
void StoredWeights::round_to_bytes(Narrow& narrow) {
  for (int64_t column = 0; column < narrow.columns; ++column) {
    const auto at = [&](int64_t row) -> double& {
      return narrow.elements[static_cast<size_t>(row * narrow.columns + column)];
    };
    float most = 0;
    for (int64_t row = 0; row < narrow.rows; ++row) most = std::max(most, std::abs(static_cast<float>(at(row))));
    const float scale = most / 127 > 0 ? most / 127 : 1;
    narrow.scales.push_back(scale);
    for (int64_t row = 0; row < narrow.rows; ++row)
      at(row) = std::clamp(std::nearbyint(static_cast<float>(at(row)) / scale), -127.0F, 127.0F);
  }
}

double StoredWeights::element(const Op& product, int64_t row, int64_t column) const {
  const auto found = narrow_.find(product.results[0]);
  if (found == narrow_.end()) return given(product, row, column);
  return found->second.elements[static_cast<size_t>(row * found->second.columns + column)];
}

float StoredWeights::scale(const Op& product, int64_t column) const {
  const auto found = narrow_.find(product.results[0]);
  if (found == narrow_.end() || dtype_ != DType::kI8) return 1;
  return found->second.scales[static_cast<size_t>(column)];
}

Array StoredWeights::elements(const Op& product) const {
  const bool transposed = product.attr_or<bool>("transpose_b", false);
  const std::vector<int64_t> sizes = sizes_of(step_.program(), product.operands[1]);
  std::vector<double> numbers;
  for (int64_t i = 0; i < sizes[0]; ++i)
    for (int64_t j = 0; j < sizes[1]; ++j) numbers.push_back(element(product, transposed ? j : i, transposed ? i : j));
  const bool is_narrow = narrow_.contains(product.results[0]);
  return Array::of(is_narrow ? dtype_ : step_.program().type(product.operands[1]).dtype, sizes, numbers);
}

Array StoredWeights::scales(const Op& product) const {
  const std::vector<int64_t> sizes = sizes_of(step_.program(), product.results[0]);
  std::vector<double> numbers;
  for (int64_t column = 0; column < sizes.back(); ++column) numbers.push_back(scale(product, column));
  return Array::of(DType::kF32, {sizes.back()}, numbers);
}

}  // namespace weft::packages
