#include "override/cells.h"

#include "base/error.h"

namespace weft::override_kernels {
namespace {

using ir::Builder;
using ir::ValueId;

/// v W^T, its columns multiplied by `scale` if there is one.
ValueId scaled_product(Builder& body, ValueId v, ValueId weight, ValueId scale) {
  ValueId product = body.matmul(v, weight, true);
  if (scale == ir::kNoValue) return product;
  ir::Shape shape = body.type(product).shape;
  return body.mul(product, body.broadcast_trailing(scale, shape));
}

/// v W^T + b: [B, gates * H].
ValueId affine(Builder& body, ValueId v, ValueId weight, ValueId scale, ValueId bias) {
  ValueId product = scaled_product(body, v, weight, scale);
  if (bias == ir::kNoValue) return product;
  ir::Shape shape = body.type(product).shape;
  return body.add(product, body.broadcast_trailing(bias, shape));
}

/// [B,H] of gate `index` from [B, gates * H].
ValueId gate(Builder& body, ValueId all, int64_t index, int64_t hidden_size) {
  return body.slice(all, 1, index * hidden_size, (index + 1) * hidden_size);
}

/// Rounds as PyTorch's own kernels of a 16-bit type do: the result of each operation. A step needn't do so, since it
/// computes in f32 registers, but what it keeps for its derivative is rounded in this way. Rounds nothing if products
/// have no 16-bit type.
struct Rounding {
  Builder& body;
  std::optional<DType> to;

  ValueId operator()(ValueId v) const {
    return to ? body.cast_loosely(body.cast_loosely(v, *to), body.type(v).dtype) : v;
  }
  /// Rounds numbers without a bound, which f16 might not hold.
  ValueId unbounded(ValueId v) const { return to == DType::kBF16 ? (*this)(v) : v; }
};

/// The gates are r, z, n, with the reset applied after the product, as in PyTorch and cuDNN; h' = (h - n) z + n.
std::vector<ValueId> gru_step(Builder& body, ValueId from_x, ValueId from_h, ValueId h, const Rounding& rounded) {
  int64_t size = body.type(h).shape[1].constant();
  auto of = [&](ValueId all, int64_t index) { return gate(body, all, index, size); };
  ValueId r = rounded(body.sigmoid(body.add(of(from_x, 0), of(from_h, 0))));
  ValueId z = rounded(body.sigmoid(body.add(of(from_x, 1), of(from_h, 1))));
  ValueId n = rounded(body.tanh(body.add(of(from_x, 2), body.mul(r, of(from_h, 2)))));
  return {body.add(body.mul(rounded.unbounded(body.sub(h, n)), z), n)};
}

/// The gates are i, f, g, o; h' = o tanh(c'), projected if there is a w_hr.
std::vector<ValueId> lstm_step(Builder& body, ValueId gates, ValueId c, ValueId w_hr, ValueId s_hr,
                               const Rounding& rounded) {
  int64_t size = body.type(c).shape[1].constant();
  auto of = [&](int64_t index) { return gate(body, gates, index, size); };
  ValueId i = rounded(body.sigmoid(of(0))), f = rounded(body.sigmoid(of(1)));
  ValueId g = rounded(body.tanh(of(2))), o = rounded(body.sigmoid(of(3)));
  ValueId next = body.add(body.mul(f, rounded.unbounded(c)), body.mul(i, g));
  ValueId h = body.mul(o, rounded(body.tanh(next)));
  return {w_hr == ir::kNoValue ? h : scaled_product(body, h, w_hr, s_hr), next};
}

}  // namespace

std::string name_of(Cell cell) {
  switch (cell) {
    case Cell::kGru:
      return "gru";
    case Cell::kLstm:
      return "lstm";
    case Cell::kRnnTanh:
      return "rnn_tanh";
    case Cell::kRnnRelu:
      return "rnn_relu";
  }
  internal_error("no cell number {}", static_cast<int>(cell));
}

Cell cell_named(std::string_view op, std::string_view name) {
  for (Cell cell : {Cell::kGru, Cell::kLstm, Cell::kRnnTanh, Cell::kRnnRelu})
    if (name_of(cell) == name) return cell;
  user_error("{}: there is no cell '{}'", op, name);
}

int64_t gates_of(Cell cell) { return cell == Cell::kGru ? 3 : cell == Cell::kLstm ? 4 : 1; }

size_t carries_of(Cell cell) { return cell == Cell::kLstm ? 2 : 1; }

std::vector<ValueId> cell_step(Builder& body, Cell cell, const CellWeights& weights, ValueId x,
                               std::span<const ValueId> carry, ValueId state, std::optional<DType> products) {
  const Rounding rounded{body, products};
  ValueId from_x = rounded(affine(body, x, weights.w_ih, weights.s_ih, weights.b_ih));
  ValueId from_h = rounded(affine(body, state, weights.w_hh, weights.s_hh, weights.b_hh));
  return cell_from_products(body, cell, from_x, from_h, carry, weights, products);
}

std::vector<ValueId> cell_from_products(Builder& body, Cell cell, ValueId from_x, ValueId from_h,
                                        std::span<const ValueId> carry, const CellWeights& weights,
                                        std::optional<DType> products) {
  const Rounding rounded{body, products};
  switch (cell) {
    case Cell::kGru:
      return gru_step(body, from_x, from_h, carry[0], rounded);
    case Cell::kLstm:
      return lstm_step(body, body.add(from_x, from_h), carry[1], weights.w_hr, weights.s_hr, rounded);
    case Cell::kRnnTanh:
      return {body.tanh(body.add(from_x, from_h))};
    case Cell::kRnnRelu:
      return {body.relu(body.add(from_x, from_h))};
  }
  internal_error("no cell number {}", static_cast<int>(cell));
}

}  // namespace weft::override_kernels
