#include "wide_step.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>

#include "ir/builder.h"
#include "ir/verifier.h"

namespace weft::testing {
namespace {

using ir::Builder;
using ir::Dim;
using ir::OpCode;
using ir::Shape;
using ir::Type;
using ir::ValueId;

class Generator {
 public:
  Generator(uint64_t seed, const WideOptions& options) : random_(seed), options_(options) {
    width_ = pick<int64_t>({64, 96, 100, 128, 224, 256, 257});
    batched_ = options.ragged || below(4) > 0;
  }

  ir::Program run() {
    program_.name = "wide";
    Builder body(program_, program_.body);
    const Dim length = Dim::symbol("T"), packed = Dim::symbol("N");
    std::optional<ir::Ragged> ragged;
    if (options_.ragged)
      ragged = ir::Ragged{body.input({DType::kI64, {length}}, "batch_sizes"), Dim::symbol("B"), packed};
    auto stack_of = [&](const Shape& row) {
      Shape shape = row;
      if (options_.ragged)
        shape[0] = packed;
      else
        shape.insert(shape.begin(), length);
      return body.input({options_.dtype, shape});
    };
    std::vector<ValueId> xs{stack_of(wide())}, inits;
    if (below(2)) xs.push_back(stack_of(narrow()));
    for (int64_t i = below(3); i >= 0; --i)
      inits.push_back(body.input({options_.dtype, pick<Shape>({wide(), wide(), other(), narrow()})}));
    captured_ = {body.input({options_.dtype, wide()}), body.input({options_.dtype, narrow()})};
    auto step = [&](Builder& b, std::span<const ValueId> carries, std::span<const ValueId> slices) {
      return make_step(b, carries, slices);
    };
    body.ret(body.scan(inits, xs, length, ragged, below(2), step));
    ir::verify(program_);
    return std::move(program_);
  }

 private:
  using Pool = std::vector<ValueId>;
  using Maker = ValueId (Generator::*)(Builder&, const Pool&);

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  template <typename T>
  T pick(const std::vector<T>& all) {
    return all[static_cast<size_t>(below(static_cast<int64_t>(all.size())))];
  }
  Shape wide() const { return batched_ ? Shape{Dim::symbol("B"), Dim(width_)} : Shape{Dim(width_)}; }
  /// A shape with rows of another width, which are shared otherwise.
  Shape other() const {
    Shape shape = wide();
    shape.back() = Dim(64);
    return shape;
  }
  Shape narrow() const { return batched_ ? Shape{Dim::symbol("B")} : Shape{}; }
  int64_t columns() const { return batched_ ? 1 : 0; }
  const Shape& shape(ValueId id) const { return program_.type(id).shape; }

  /// There is always one: the first x.
  ValueId wide_one(Builder& b, const Pool& pool) { return pick_of(b, pool, wide()); }

  /// A value of that shape; made from a wide one if there is none.
  ValueId pick_of(Builder& b, const Pool& pool, const Shape& wanted) {
    Pool fitting;
    std::ranges::copy_if(pool, std::back_inserter(fitting), [&](ValueId id) { return shape(id) == wanted; });
    if (!fitting.empty()) return pick(fitting);
    const ValueId whole = wide_one(b, pool);
    return wanted == other() ? b.slice(whole, columns(), 0, 64) : sum(b, whole);
  }

  ValueId spread(Builder& b, ValueId of_row) {
    return b.broadcast(of_row, wide(), batched_ ? std::vector<int64_t>{0} : std::vector<int64_t>{});
  }

  ValueId scaled(Builder& b, ValueId value, double factor) {
    return b.mul(value, b.constant(factor, Type(program_.type(value))));
  }

  ValueId sum(Builder& b, ValueId a) {
    return scaled(b, b.reduce_sum(a, {columns()}), 2.0 / static_cast<double>(width_));
  }

  ValueId unary(Builder& b, const Pool& pool) {
    return b.unary(pick<OpCode>({OpCode::kTanh, OpCode::kSigmoid, OpCode::kNeg, OpCode::kRelu}), pick(pool));
  }
  ValueId binary(Builder& b, const Pool& pool) {
    ValueId a = pick(pool);
    return b.binary(pick<OpCode>({OpCode::kAdd, OpCode::kSub, OpCode::kMul, OpCode::kMaximum}), a,
                    pick_of(b, pool, Shape(shape(a))));
  }
  ValueId reduce(Builder& b, const Pool& pool) {
    ValueId a = wide_one(b, pool);
    return below(3) ? sum(b, a) : b.emit(OpCode::kReduceMax, {a}, {{"dims", std::vector<int64_t>{columns()}}});
  }
  ValueId spread_one(Builder& b, const Pool& pool) { return spread(b, pick_of(b, pool, narrow())); }
  ValueId product(Builder& b, const Pool& pool) {
    if (!options_.products) return unary(b, pool);
    Builder outside(program_, program_.body);
    const Dim from = below(3) ? Dim(width_) : Dim(64), to = below(3) ? Dim(width_) : Dim(64);
    ValueId weight = outside.input({options_.dtype, {from, to}});
    ValueId left = pick_of(b, pool, from == Dim(width_) ? wide() : other());
    return scaled(b, b.matmul(left, weight), 1 / std::sqrt(static_cast<double>(from.constant())));
  }
  /// The columns at another place: halves swapped, rotated by one, or moved up with a zero at the end.
  ValueId moved(Builder& b, const Pool& pool) {
    ValueId a = wide_one(b, pool);
    auto columns_of = [&](int64_t first, int64_t last) { return b.slice(a, columns(), first, last); };
    switch (below(3)) {
      case 0:
        if (width_ % 2 == 0) return b.concat({columns_of(width_ / 2, width_), columns_of(0, width_ / 2)}, columns());
        [[fallthrough]];
      case 1:
        return b.concat({columns_of(1, width_), columns_of(0, 1)}, columns());
      default:
        return b.emit(OpCode::kPad, {columns_of(1, width_)},
                      {{"dim", columns()}, {"low", int64_t{0}}, {"high", int64_t{1}}});
    }
  }

  Builder::StepResults make_step(Builder& b, std::span<const ValueId> carries, std::span<const ValueId> slices) {
    const std::vector<Maker> makers = {
        &Generator::unary,  &Generator::unary,  &Generator::binary,     &Generator::binary,  &Generator::binary,
        &Generator::reduce, &Generator::reduce, &Generator::spread_one, &Generator::product, &Generator::moved};
    Pool pool(carries.begin(), carries.end());
    pool.insert(pool.end(), slices.begin(), slices.end());
    pool.push_back(pick(captured_));
    for (int64_t i = 2 + below(7); i > 0; --i) pool.push_back(std::invoke(pick(makers), this, b, pool));
    if (options_.nested) pool.push_back(scan_columns(b, wide_one(b, pool)));
    Builder::StepResults results;
    for (ValueId carry : carries) {
      ValueId other = pick_of(b, pool, Shape(shape(carry)));
      results.carries.push_back(b.tanh(b.add(scaled(b, carry, 0.5), other)));
      pool.push_back(results.carries.back());
    }
    for (int64_t i = below(3); i >= 0; --i) results.ys.push_back(pick(pool));
    return results;
  }

  /// Three steps of a recurrence of its own.
  ValueId scan_columns(Builder& b, ValueId a) {
    auto step = [&](Builder& inner, std::span<const ValueId> carries, std::span<const ValueId>) {
      return Builder::StepResults{{inner.tanh(inner.add(scaled(inner, carries[0], 0.5), spread(inner, sum(inner, a))))},
                                  {}};
    };
    return b.scan({a}, {}, Dim(3), false, step)[0];
  }

  std::mt19937_64 random_;
  WideOptions options_;
  ir::Program program_;
  int64_t width_ = 0;
  bool batched_ = true;
  Pool captured_;
};

}  // namespace

ir::Program random_wide_step(uint64_t seed, const WideOptions& options) { return Generator(seed, options).run(); }

}  // namespace weft::testing
