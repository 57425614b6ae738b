// Sums, maxima, and products of two values that a step computes: a fold for each vector of the result.
#include <algorithm>

#include "codegen/pointwise.h"
#include "packages/emit/emitter.h"

namespace weft::packages {

using ir::Op;
using ir::OpCode;
using ir::ValueId;
using llvm::Value;

/// Whether the op is one of two operands with which a chain of terms is folded.
bool Emitter::folds_terms(const Op& op) { return ir::is_addition(op.code) || op.code == OpCode::kMaximum; }

/// The sum, or the maximum, as a reduction or an op that folds terms says.
Value* Emitter::combine(const Op& op, Value* a, Value* b) {
  const bool real = a->getType()->isFPOrFPVectorTy();
  if (op.code == OpCode::kReduceSum || ir::is_addition(op.code)) return real ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
  return real ? codegen::emit_maximum(b_, a, b) : b_.CreateSelect(b_.CreateICmpSGT(a, b), a, b);
}

Value* Emitter::identity(const Op& op, unsigned lanes) {
  auto* type = register_type(dtype(op.results[0]), lanes);
  if (op.code == OpCode::kReduceSum) return llvm::Constant::getNullValue(type);
  if (type->isFPOrFPVectorTy()) return llvm::ConstantFP::getInfinity(type, true);
  const unsigned bits = type->getScalarSizeInBits();
  return llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(bits));
}

void Emitter::emit_folds(ValueId result, const std::vector<int64_t>& inner,
                         const std::function<Value*(unsigned)>& start, const Fold& next) {
  const std::vector<int64_t> domain = sizes(result);
  const Blocks blocks = blocks_for(result);
  slack_ = blocks.padded() - blocks.columns;
  const Buffer to = in_state(result, reserve(result, blocks.padded()));
  const auto fold = [&](const Place& outer) {
    Value* total = variable(start(outer.lanes));
    std::vector<Coordinate> at(inner.size());
    const auto scope = std::pair(known_, computed_);
    loops(inner, 0, at, [&] {
      Value* before = b_.CreateLoad(register_type(dtype(result), outer.lanes), total);
      b_.CreateStore(next(outer, at, before), total);
    });
    std::tie(known_, computed_) = scope;
    store(to, outer.at, b_.CreateLoad(register_type(dtype(result), outer.lanes), total));
  };
  std::vector<Coordinate> at(domain.size());
  std::vector<int64_t> rows = domain;
  if (!rows.empty()) rows.back() = 1;
  loops(rows, 0, at, [&] {
    if (domain.empty()) return fold({{}, -1, 1});
    loop(blocks.count, 1, [&](Value* block) {
      const auto scope = std::pair(known_, computed_);
      block_column_ = blocks.count == 1 ? nullptr : b_.CreateMul(block, number(blocks.width()), "", true, true);
      at.back() = {block_column_, 0};
      fold({at, static_cast<int64_t>(domain.size()) - 1, blocks.lanes});
      std::tie(known_, computed_) = scope;
    });
  });
  block_column_ = nullptr;
  buffers_[result] = to;
}

void Emitter::emit_reduction(const Op& op) {
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  const std::vector<int64_t> shape = sizes(op.operands[0]);
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  if (std::ranges::find(dims, last) != dims.end()) return emit_row_reduction(op, dims);
  std::vector<int64_t> inner;
  for (int64_t dim : dims) inner.push_back(shape[static_cast<size_t>(dim)]);
  emit_folds(
      op.results[0], inner, [&](unsigned lanes) { return identity(op, lanes); },
      [&](const Place& outer, const std::vector<Coordinate>& at, Value* before) {
        Place place{std::vector<Coordinate>(shape.size()), outer.lane < 0 ? -1 : last, outer.lanes};
        size_t kept = 0, reduced = 0;
        for (size_t i = 0; i < shape.size(); ++i)
          place.at[i] =
              std::ranges::find(dims, static_cast<int64_t>(i)) != dims.end() ? at[reduced++] : outer.at[kept++];
        return combine(op, before, get(op.operands[0], place));
      });
}

/// Over the last dim: vectors of a row are added up, then the lanes by halves.
void Emitter::emit_row_reduction(const Op& op, const std::vector<int64_t>& dims) {
  const ValueId result = op.results[0];
  const std::vector<int64_t> shape = sizes(op.operands[0]), domain = sizes(result);
  const unsigned lanes = lanes_for(op.operands[0]);
  const int64_t columns = shape.back(), whole = columns / lanes, left = columns % lanes;
  slack_ = lanes;
  const Buffer to = in_state(result, reserve(result, domain.empty() ? 1 : domain.back()));
  auto* type = register_type(dtype(result), lanes);
  std::vector<int64_t> rows = shape;  // all dims but the last; reduced dims are the inner loops
  const auto is_reduced = [&](size_t dim) { return std::ranges::find(dims, static_cast<int64_t>(dim)) != dims.end(); };
  std::vector<int64_t> outer_sizes, inner_sizes;
  for (size_t i = 0; i + 1 < shape.size(); ++i) (is_reduced(i) ? inner_sizes : outer_sizes).push_back(shape[i]);
  std::vector<Coordinate> outer(outer_sizes.size());
  loops(outer_sizes, 0, outer, [&] {
    Value* total = variable(identity(op, lanes));
    std::vector<Coordinate> inner(inner_sizes.size());
    const auto add = [&](Value* column, int64_t first, int64_t count) {
      Place place{std::vector<Coordinate>(shape.size()), static_cast<int64_t>(shape.size()) - 1, lanes};
      size_t kept = 0, reduced = 0;
      for (size_t i = 0; i + 1 < shape.size(); ++i) place.at[i] = is_reduced(i) ? inner[reduced++] : outer[kept++];
      place.at.back() = {column, first};
      const auto scope = std::pair(known_, computed_);
      Value* vector = get(op.operands[0], place);
      std::tie(known_, computed_) = scope;
      if (count < lanes) {
        std::vector<llvm::Constant*> mask;
        for (int64_t i = 0; i < lanes; ++i) mask.push_back(b_.getInt1(i < count));
        vector = b_.CreateSelect(llvm::ConstantVector::get(mask), vector, identity(op, lanes));
      }
      b_.CreateStore(combine(op, b_.CreateLoad(type, total), vector), total);
    };
    loops(inner_sizes, 0, inner, [&] {
      loop(whole, 1, [&](Value* i) { add(whole == 1 ? nullptr : b_.CreateMul(i, number(lanes)), 0, lanes); });
      if (left > 0) add(nullptr, whole * lanes, left);
    });
    Value* all = b_.CreateLoad(type, total);
    for (unsigned half = lanes / 2; half > 0; half /= 2) {
      std::vector<int> low(half), high(half);
      for (unsigned i = 0; i < half; ++i) {
        low[i] = static_cast<int>(i);
        high[i] = static_cast<int>(i + half);
      }
      all = combine(op, b_.CreateShuffleVector(all, low), b_.CreateShuffleVector(all, high));
    }
    store(to, outer, all);
  });
  buffers_[result] = to;
}

/// matmul, batch_matmul and outer: each element is a sum over the dims that both operands have and the result lacks.
void Emitter::emit_contraction(const Op& op) {
  const ValueId left = op.operands[0], right = op.operands[1];
  const std::vector<int64_t> a = sizes(left);
  const bool turned_a = op.attr_or<bool>("transpose_a", false), turned_b = op.attr_or<bool>("transpose_b", false);
  std::vector<int64_t> inner;
  if (op.code == OpCode::kOuter)
    inner.assign(a.begin(), a.end() - 1);
  else
    inner = {a[a.size() - (turned_a ? 2 : 1)]};
  const auto places = [&](const Place& outer, const std::vector<Coordinate>& at) {
    const size_t n = outer.at.size();
    Place x{{}, -1, 1}, y{{}, -1, outer.lanes};
    const Coordinate column = outer.at[n - 1];
    if (op.code == OpCode::kOuter) {
      x.at = y.at = at;
      x.at.push_back(outer.at[0]);
      y.at.push_back(column);
      y.lane = static_cast<int64_t>(y.at.size()) - 1;
      return std::pair(x, y);
    }
    x.at.assign(outer.at.begin(), outer.at.end() - 1);
    if (op.code == OpCode::kBatchMatmul) y.at.assign(outer.at.begin(), outer.at.end() - 2);
    x.at.insert(turned_a ? x.at.end() - 1 : x.at.end(), at[0]);
    y.at.push_back(turned_b ? column : at[0]);
    y.at.push_back(turned_b ? at[0] : column);
    y.lane = static_cast<int64_t>(y.at.size()) - (turned_b ? 2 : 1);
    return std::pair(x, y);
  };
  emit_folds(
      op.results[0], inner,
      [&](unsigned lanes) -> Value* {
        return llvm::Constant::getNullValue(register_type(dtype(op.results[0]), lanes));
      },
      [&](const Place& outer, const std::vector<Coordinate>& at, Value* before) {
        const auto [x, y] = places(outer, at);
        return multiply_add(splat(get(left, x), outer.lanes), get(right, y), before);
      });
}

}  // namespace weft::packages
