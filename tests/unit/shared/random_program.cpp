#include "random_program.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <random>

#include "ir/builder.h"
#include "ir/verifier.h"
#include "passes/loops/batch.h"

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
  Generator(uint64_t seed, const RandomOptions& options) : random_(seed), options_(options) {}

  ir::Program run() {
    program_.name = "random";
    Builder body(program_, program_.body);
    Dim t = Dim::symbol("T");
    Dim b = Dim::symbol("B");
    Pool pool;
    pool.push_back(body.input({options_.dtype, {t, b, Dim(below(5) + 1)}}, "x"));
    pool.push_back(body.input({options_.dtype, {b, Dim(below(5) + 1)}}, "h"));
    pool.push_back(body.input({options_.dtype, {Dim(below(5) + 1)}}));
    if (options_.ragged) {
      pool.push_back(body.input({options_.dtype, {Dim::symbol("N"), Dim(below(5) + 1)}}, "packed"));
      ragged_ = ir::Ragged{body.input({DType::kI64, {t}}, "batch_sizes"), b, Dim::symbol("N")};
    }
    if (options_.mixed) pool.push_back(body.input({pick<DType>({DType::kI32, DType::kF16, DType::kBool}), {t, b}}));
    grow(body, pool, 0);
    std::vector<ValueId> results;
    for (int64_t i = 0; i < 3; ++i) results.push_back(pool[index(pool.size())]);
    results.push_back(pool.back());
    body.ret(std::move(results));
    ir::verify(program_);
    return std::move(program_);
  }

 private:
  using Pool = std::vector<ValueId>;  // values that may be used here

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  size_t index(size_t n) { return static_cast<size_t>(below(static_cast<int64_t>(n))); }
  template <typename T>
  T pick(const std::vector<T>& all) {
    return all[index(all.size())];
  }
  const Type& type(ValueId id) const { return program_.type(id); }
  bool is_float(ValueId id) const { return is_floating(type(id).dtype); }

  /// Another value of the same type, or the value itself.
  ValueId partner(const Pool& pool, ValueId a) {
    Pool same;
    for (ValueId id : pool)
      if (type(id) == type(a)) same.push_back(id);
    return same.empty() ? a : pick(same);
  }

  using Maker = bool (Generator::*)(Builder&, Pool&, ValueId);

  static const std::vector<Maker>& makers() {
    static const std::vector<Maker> all = {
        &Generator::unary,   &Generator::unary,  &Generator::binary,    &Generator::binary,   &Generator::compare,
        &Generator::widen,   &Generator::reduce, &Generator::movement,  &Generator::movement, &Generator::reshape,
        &Generator::matmul,  &Generator::matmul, &Generator::two_sided, &Generator::tamed,    &Generator::look_up,
        &Generator::convert, &Generator::choose, &Generator::repeat};
    return all;
  }

  void grow(Builder& b, Pool& pool, int depth) {
    for (int i = 0; i < options_.ops; ++i) {
      if (depth < options_.scan_depth && !in_ragged_ && below(6) == 0) {
        if (ragged_ && depth == 0 && below(2))
          ragged_scan(b, pool);
        else
          scan(b, pool, depth);
        continue;
      }
      for (int attempt = 0; attempt < 5; ++attempt)
        if (make(b, pool, pick(makers()))) break;
    }
    if (depth == 0 && options_.scan_depth > 0) scan(b, pool, depth);
    if (depth == 0 && ragged_ && options_.scan_depth > 0) ragged_scan(b, pool);
  }

  /// False when nothing was made, or nothing that may be in the current ragged region.
  bool make(Builder& b, Pool& pool, Maker maker) {
    size_t ops = b.block().ops.size();
    size_t values = pool.size();
    if (!std::invoke(maker, this, b, pool, pick(pool))) return false;
    if (!in_ragged_) return true;
    bool fits = true;
    for (size_t i = ops; i < b.block().ops.size(); ++i) fits = fits && may_stand(b.block().ops[i]);
    if (fits) return true;
    b.block().ops.resize(ops);
    pool.resize(values);
    return false;
  }

  bool is_steady_type(const Type& type) const {
    Type rest = type;
    if (has_rows(rest, *ragged_)) rest.shape.erase(rest.shape.begin());
    return !mentions_rows(rest, *ragged_);
  }

  bool may_stand(const ir::Op& op) const {
    for (const auto* values : {&op.operands, &op.results})
      for (ValueId id : *values)
        if (!is_steady_type(type(id))) return false;
    if (!options_.row_wise || op.code == OpCode::kConstant) return true;
    return passes::keeps_rows(program_, op, *ragged_) && has_rows(type(op.results[0]), *ragged_);
  }

  bool unary(Builder& b, Pool& pool, ValueId a) {
    // Left out where gradients are compared with finite differences.
    if (options_.mixed && below(12) == 0) return keep(pool, b.unary(OpCode::kStopGradient, a));
    if (type(a).dtype == DType::kBool) return keep(pool, b.unary(pick<OpCode>({OpCode::kNot, OpCode::kCopy}), a));
    if (!is_float(a))
      return keep(pool, b.unary(pick<OpCode>({OpCode::kNeg, OpCode::kAbs, OpCode::kSign, OpCode::kNot}), a));
    return keep(pool, b.unary(pick<OpCode>({OpCode::kTanh, OpCode::kSigmoid, OpCode::kNeg, OpCode::kAbs, OpCode::kRelu,
                                            OpCode::kSin, OpCode::kCos, OpCode::kErf, OpCode::kCopy}),
                              a));
  }

  bool binary(Builder& b, Pool& pool, ValueId a) {
    if (type(a).dtype == DType::kBool)
      return keep(pool, b.binary(pick<OpCode>({OpCode::kAnd, OpCode::kOr}), a, partner(pool, a)));
    OpCode code = pick<OpCode>({OpCode::kAdd, OpCode::kSub, OpCode::kMul, OpCode::kMaximum, OpCode::kMinimum});
    if (!is_float(a) && below(3) == 0) {
      if (below(2)) return keep(pool, b.binary(pick<OpCode>({OpCode::kAnd, OpCode::kOr}), a, partner(pool, a)));
      ValueId divisor = b.constant(static_cast<double>(pick<int64_t>({-3, -1, 1, 2, 7})), Type(type(a)));
      return keep(pool, b.binary(pick<OpCode>({OpCode::kDiv, OpCode::kRem}), a, divisor));
    }
    return keep(pool, b.binary(code, a, partner(pool, a)));
  }

  bool compare(Builder& b, Pool& pool, ValueId a) {
    ValueId other = partner(pool, a);
    ValueId condition = b.binary(pick<OpCode>({OpCode::kLt, OpCode::kGe, OpCode::kEq, OpCode::kNe}), a, other);
    return keep(pool, below(2) ? condition : b.select(condition, a, other));
  }

  bool widen(Builder& b, Pool& pool, ValueId a) {
    if (type(a).rank() >= 3) return false;
    Shape shape = type(a).shape;
    std::vector<int64_t> dims;
    int64_t at = below(type(a).rank() + 1);
    for (int64_t i = 0; i < type(a).rank(); ++i) dims.push_back(i < at ? i : i + 1);
    Dim fresh = pick<Dim>({Dim(below(3) + 1), Dim::symbol("B"), Dim::symbol("T")});
    shape.insert(shape.begin() + at, fresh);
    return keep(pool, b.broadcast(a, shape, dims));
  }

  bool reduce(Builder& b, Pool& pool, ValueId a) {
    if (type(a).rank() == 0 || !is_float(a)) return false;
    int64_t dim = below(type(a).rank());
    const Dim& size = type(a).shape[static_cast<size_t>(dim)];
    if (size.is_constant() && size.constant() > 0 && below(2))  // without elements the maximum would be -inf
      return keep(pool, b.emit(OpCode::kReduceMax, {a}, {{"dims", std::vector<int64_t>{dim}}}));
    return keep(pool, b.tanh(b.reduce_sum(a, {dim})));
  }

  /// Functions with poles or of fast growth, on arguments that keep them moderate.
  bool tamed(Builder& b, Pool& pool, ValueId a) {
    if (!is_float(a)) return false;
    ValueId magnitude = b.unary(OpCode::kAbs, a);
    ValueId positive = b.add(magnitude, b.constant(1.0, Type(type(a))));
    switch (below(9)) {
      case 0:
        return keep(pool, b.unary(OpCode::kExp, b.neg(magnitude)));
      case 5:
        return keep(pool, b.unary(OpCode::kExpm1, b.neg(magnitude)));
      case 6:
        return keep(pool, b.binary(pick<OpCode>({OpCode::kAtan2, OpCode::kHypot, OpCode::kLogaddexp}), a, positive));
      case 7:
        return keep(pool, b.unary(pick<OpCode>({OpCode::kLog2, OpCode::kLog10}), positive));
      case 8:
        return keep(pool, b.unary(OpCode::kErfc, a));
      case 1:
        return keep(pool, b.div(a, positive));
      case 2:
        return keep(pool, b.binary(OpCode::kPow, positive, b.tanh(a)));
      case 3:
        return keep(pool, b.unary(OpCode::kLog1p, magnitude));
      case 4:
        return keep(pool, b.unary(OpCode::kLog, positive));
      default:
        return keep(pool, b.unary(pick<OpCode>({OpCode::kSqrt, OpCode::kRsqrt}), positive));
    }
  }

  /// Reads a table by a fresh index, whose elements random_inputs makes 0 or 1.
  bool look_up(Builder& b, Pool& pool, ValueId a) {
    if (!is_float(a) || type(a).rank() == 0) return false;
    Builder outside(program_, program_.body);
    const Dim first = type(a).shape[0];
    DType index_type = pick<DType>({DType::kI32, DType::kI64});
    if (first.is_constant() && first.constant() >= 2 && below(2)) {
      Dim count = pick<Dim>({Dim(3), Dim::symbol("B"), Dim::symbol("T")});
      return keep(pool, b.emit(OpCode::kGather, {a, outside.input({index_type, {count}})}));
    }
    if (first.is_constant() && first.constant() >= 2 && below(2)) {
      ValueId index = outside.input({index_type, {Dim(1)}});  // an index that stands twice has no derivative
      ValueId rows = b.emit(OpCode::kGather, {b.tanh(a), index});
      return keep(pool, b.emit(OpCode::kScatter, {a, index, rows}));
    }
    Type sums = type(a);
    sums.shape[0] = Dim(below(3) + 2);
    ValueId index = outside.input({index_type, {first}});
    return keep(pool, b.emit(OpCode::kScatterAdd, {index, a}, {}, &sums));
  }

  bool movement(Builder& b, Pool& pool, ValueId a) {
    int64_t rank = type(a).rank();
    if (rank == 0) return false;
    int64_t dim = below(rank);
    const Dim size = type(a).shape[static_cast<size_t>(dim)];
    switch (below(5)) {
      case 0:
        return keep(pool, b.emit(OpCode::kReverse, {a}, {{"dim", dim}}));
      case 1: {
        std::vector<int64_t> perm(static_cast<size_t>(rank));
        for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
        std::shuffle(perm.begin(), perm.end(), random_);
        return keep(pool, b.transpose(a, perm));
      }
      default:
        break;
    }
    if (!size.is_constant()) return options_.symbolic_bounds && move_within_symbolic(b, pool, a, dim);
    switch (below(3)) {
      case 0: {
        const int64_t low = below(2), high = below(2);
        if (!in_ragged_ && size.constant() % 2 == 1) return keep(pool, placed(b, a, dim, low, high));
        return keep(pool, b.emit(OpCode::kPad, {a}, {{"dim", dim}, {"low", low}, {"high", high}}));
      }
      case 1:
        return keep(pool, b.concat({a, partner(pool, a)}, dim));
      default: {
        int64_t start = below(size.constant() + 1);
        int64_t limit = start + below(size.constant() - start + 1);
        if (limit == start && size.constant() > 0 && below(4) > 0) return false;  // empty dims, but not everywhere
        if (!in_ragged_ && (start + limit) % 2 == 1) {
          const ValueId place = b.constant(static_cast<double>(start), {DType::kI64, {}});
          return keep(pool, b.emit(OpCode::kDynamicSlice, {a, place}, {{"dim", dim}, {"size", limit - start}}));
        }
        return keep(pool, b.slice(a, dim, start, limit));
      }
    }
  }

  /// A pad made otherwise: rows of zeros, some of which are replaced.
  ValueId placed(Builder& b, ValueId a, int64_t dim, int64_t low, int64_t high) {
    Type type = this->type(a);
    Dim& size = type.shape[static_cast<size_t>(dim)];
    size = size + Dim(low + high);
    const ValueId zeros = b.constant(0, type), place = b.constant(static_cast<double>(low), {DType::kI64, {}});
    return b.emit(OpCode::kDynamicUpdate, {zeros, a, place}, {{"dim", dim}});
  }

  /// A size that is never larger than `size`, none of whose terms may be negative.
  Dim part_of(const Dim& size) {
    Dim part(below(size.number() + 1));
    for (const Dim::Term& term : size.terms()) {
      Dim product(below(term.factor + 1));
      for (const Dim::Atom& atom : term.atoms)
        product = product * (atom.dividend ? floor_divide(*atom.dividend, atom.divisor) : Dim::symbol(atom.symbol));
      part = part + product;
    }
    return below(4) ? part : floor_divide(part, below(3) + 1);
  }

  /// Slices, pads and concatenations of a symbolic dim. The rows of a ragged scan have none of these.
  bool move_within_symbolic(Builder& b, Pool& pool, ValueId a, int64_t dim) {
    const Dim size = type(a).shape[static_cast<size_t>(dim)];
    if (!size.is_never_negative() || (ragged_ && (size.mentions("B") || size.mentions("N")))) return false;
    auto amount = [&] { return pick<Dim>({Dim(0), Dim(1), Dim(2), Dim::symbol("T")}); };
    switch (below(4)) {
      case 0:
        return keep(pool, b.emit(OpCode::kPad, {a},
                                 {{"dim", dim}, {"low", ir::as_attr(amount())}, {"high", ir::as_attr(amount())}}));
      case 1:
        return keep(pool, b.concat({a, partner(pool, a)}, dim));
      default: {
        const Dim start = part_of(size), rest = size - start;
        return keep(pool, b.slice(a, dim, start, rest.is_never_negative() ? start + part_of(rest) : size));
      }
    }
  }

  bool reshape(Builder& b, Pool& pool, ValueId a) {
    Shape shape = type(a).shape;
    if (shape.size() < 2) return false;
    size_t at = index(shape.size() - 1);
    shape[at] = shape[at] * shape[at + 1];
    shape.erase(shape.begin() + static_cast<int64_t>(at) + 1);
    return keep(pool, b.reshape(a, shape));
  }

  /// A product with a fresh weight, which is an input of the program wherever it is used.
  bool matmul(Builder& b, Pool& pool, ValueId a) {
    if (!is_float(a) || type(a).rank() == 0 || !type(a).shape.back().is_constant()) return false;
    Dim k = type(a).shape.back();
    Dim n(below(6) + 1);
    bool transposed = below(2);
    Type weight{type(a).dtype, transposed ? Shape{n, k} : Shape{k, n}};
    Builder outside(program_, program_.body);
    return keep(pool, b.matmul(a, outside.input(weight), transposed));
  }

  bool two_sided(Builder& b, Pool& pool, ValueId a) {
    if (!is_float(a) || type(a).rank() == 0) return false;
    ValueId other = partner(pool, a);
    if (type(a).rank() == 1 || below(2)) return keep(pool, b.tanh(b.outer(a, other)));
    ir::Attrs attrs;
    attrs.emplace(below(2) ? "transpose_a" : "transpose_b", true);
    return keep(pool, b.tanh(b.emit(OpCode::kBatchMatmul, {a, other}, attrs)));
  }

  bool convert(Builder& b, Pool& pool, ValueId a) {
    if (!options_.mixed) return type(a).dtype != options_.dtype && keep(pool, b.cast(a, options_.dtype));
    return keep(pool, b.cast(a, pick<DType>({DType::kF32, DType::kF64, DType::kBF16, DType::kI32, options_.dtype})));
  }

  /// A few ops of a region of cond or while.
  Pool grown(Builder& body, Pool pool) {
    in_control_ = true;
    for (int i = 0; i < 4; ++i) make(body, pool, pick(makers()));
    in_control_ = false;
    return pool;
  }

  bool choose(Builder& b, Pool& pool, ValueId a) {
    // In 16 bits rounding would decide the branch.
    if (in_control_ || !is_float(a) || size_of(type(a).dtype) == 2) return false;
    std::vector<int64_t> dims(static_cast<size_t>(type(a).rank()));
    std::iota(dims.begin(), dims.end(), 0);
    ValueId sum = b.reduce_sum(a, dims);
    ValueId predicate = b.binary(OpCode::kLt, sum, b.constant(0.1, Type(type(sum))));
    Pool chosen = {a, pick(pool)};
    auto branch = [&](Builder& body) {
      Pool inner = grown(body, pool);
      std::vector<ValueId> results;
      for (ValueId v : chosen) results.push_back(next(body, inner, v));
      return results;
    };
    for (ValueId id : b.cond(predicate, branch, branch)) keep(pool, id);
    return true;
  }

  bool repeat(Builder& b, Pool& pool, ValueId a) {
    if (in_control_ || !options_.mixed || !options_.loops) return false;
    Type count{DType::kI64, {}};
    auto condition = [&](Builder& body, std::span<const ValueId> carries) {
      return std::vector{body.binary(OpCode::kLt, carries[0], body.constant(static_cast<double>(below(4)), count))};
    };
    auto step = [&](Builder& body, std::span<const ValueId> carries) {
      Pool inner = pool;
      inner.insert(inner.end(), carries.begin(), carries.end());
      inner = grown(body, std::move(inner));
      ValueId counted = body.add(carries[0], body.constant(1, count));
      return std::vector{counted, next(body, inner, carries[1])};
    };
    for (ValueId id : b.while_loop({b.constant(0, count), a}, condition, step)) keep(pool, id);
    return true;
  }

  bool keep(Pool& pool, ValueId id) {
    if (ir::element_count(type(id).shape).degree() > 3) return true;  // would become too large: left unused
    pool.push_back(id);
    return true;
  }

  void scan(Builder& b, Pool& pool, int depth) {
    Dim length = pick<Dim>({Dim::symbol("T"), Dim::symbol("T"), Dim::symbol("B"), Dim(3)});
    std::vector<ValueId> xs;
    for (ValueId id : pool)
      if (type(id).rank() > 0 && type(id).shape[0] == length && below(2)) xs.push_back(id);
    std::vector<ValueId> inits;
    for (int64_t i = below(3); i >= 0; --i) inits.push_back(pick(pool));
    auto step = [&](Builder& body, std::span<const ValueId> carries, std::span<const ValueId> slices) {
      Pool inner(carries.begin(), carries.end());
      inner.insert(inner.end(), slices.begin(), slices.end());
      inner.push_back(pick(pool));  // captured
      grow(body, inner, depth + 1);
      Builder::StepResults results;
      for (ValueId carry : carries) results.carries.push_back(next(body, inner, carry));
      for (int64_t i = below(3); i > 0; --i) results.ys.push_back(pick(inner));
      return results;
    };
    for (ValueId id : b.scan(inits, xs, length, below(2), step)) keep(pool, id);
  }

  void ragged_scan(Builder& b, Pool& pool) {
    auto rows = [&](ValueId id) { return has_rows(type(id), *ragged_); };
    Pool xs, steady;
    for (ValueId id : pool) {
      const Type& stack = type(id);
      bool packed = stack.rank() > 0 && stack.shape[0] == ragged_->packed;
      bool steps = stack.rank() > 0 && stack.shape[0] == Dim::symbol("T") && !options_.row_wise;
      if ((packed || steps) && !mentions_rows(stack, *ragged_) && below(3)) xs.push_back(id);
      if (is_steady_type(stack) && (rows(id) || !options_.row_wise)) steady.push_back(id);
    }
    if (steady.empty()) return;
    Pool inits;
    for (int64_t i = below(3); i >= 0; --i) inits.push_back(pick(steady));
    auto step = [&](Builder& body, std::span<const ValueId> carries, std::span<const ValueId> slices) {
      Pool inner(carries.begin(), carries.end());
      inner.insert(inner.end(), slices.begin(), slices.end());
      inner.push_back(pick(steady));  // captured
      in_ragged_ = true;
      grow(body, inner, 1);
      in_ragged_ = false;
      Builder::StepResults results;
      for (ValueId carry : carries) results.carries.push_back(next(body, inner, carry));
      for (int64_t i = below(3); i > 0; --i) results.ys.push_back(pick(inner));
      return results;
    };
    for (ValueId id : b.scan(inits, xs, Dim::symbol("T"), ragged_, below(2), step)) keep(pool, id);
  }

  ValueId next(Builder& body, const Pool& pool, ValueId carry) {
    ValueId other = partner(pool, carry);
    if (!is_float(carry) || below(5) == 0) return other;
    return body.tanh(body.add(carry, other));
  }

  std::mt19937_64 random_;
  RandomOptions options_;
  ir::Program program_;
  std::optional<ir::Ragged> ragged_;  // the form of ragged scans
  bool in_ragged_ = false;
  bool in_control_ = false;
};

}  // namespace

ir::Program random_program(uint64_t seed, const RandomOptions& options) { return Generator(seed, options).run(); }

}  // namespace weft::testing
