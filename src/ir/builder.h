#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "ir/program.h"

namespace weft::ir {

/// Appends ops to a block of a program; types are inferred, and checked as they are added (user's error on a misfit).
class Builder {
 public:
  Builder(Program& program, Block& block) : program_(program), block_(block) {}

  Program& program() { return program_; }
  Block& block() { return block_; }
  const Type& type(ValueId id) const { return program_.type(id); }

  /// A new program input.
  ValueId input(Type type, std::string name = "");
  /// Any op with one result. Ops that need a declared type take it as `declared`.
  ValueId emit(OpCode code, std::vector<ValueId> operands, Attrs attrs = {}, const Type* declared = nullptr);
  /// An op with all its results, regions included (types of results inferred).
  Op& append(Op op, std::vector<Type> declared = {});

  ValueId constant(double value, Type type);
  ValueId unary(OpCode code, ValueId a) { return emit(code, {a}); }
  ValueId binary(OpCode code, ValueId a, ValueId b) { return emit(code, {a, b}); }
  ValueId neg(ValueId a) { return unary(OpCode::kNeg, a); }
  ValueId tanh(ValueId a) { return unary(OpCode::kTanh, a); }
  ValueId sigmoid(ValueId a) { return unary(OpCode::kSigmoid, a); }
  ValueId relu(ValueId a) { return unary(OpCode::kRelu, a); }
  ValueId add(ValueId a, ValueId b) { return binary(OpCode::kAdd, a, b); }
  ValueId sub(ValueId a, ValueId b) { return binary(OpCode::kSub, a, b); }
  ValueId mul(ValueId a, ValueId b) { return binary(OpCode::kMul, a, b); }
  ValueId div(ValueId a, ValueId b) { return binary(OpCode::kDiv, a, b); }
  ValueId select(ValueId c, ValueId a, ValueId b) { return emit(OpCode::kSelect, {c, a, b}); }
  /// `a` cast to a dtype; `a` itself if it has that dtype.
  ValueId cast(ValueId a, DType dtype);
  /// A cast with {excess_precision = true}.
  ValueId cast_loosely(ValueId a, DType dtype);
  /// Operand dim i becomes result dim dims[i].
  ValueId broadcast(ValueId a, const Shape& shape, std::vector<int64_t> dims);
  /// Trailing dims aligned, as for a bias; `a`'s dims equal the last dims of `shape`.
  ValueId broadcast_trailing(ValueId a, const Shape& shape);
  ValueId reshape(ValueId a, const Shape& shape);
  ValueId transpose(ValueId a, std::vector<int64_t> perm);
  ValueId slice(ValueId a, int64_t dim, const Dim& start, const Dim& limit);
  ValueId concat(std::vector<ValueId> parts, int64_t dim);
  ValueId reduce_sum(ValueId a, std::vector<int64_t> dims);
  ValueId matmul(ValueId a, ValueId b, bool transpose_b = false);
  ValueId outer(ValueId a, ValueId b) { return emit(OpCode::kOuter, {a, b}); }

  /// A step: from the carries and the slices of xs to the next carries and ys.
  struct StepResults {
    std::vector<ValueId> carries, ys;
  };
  using Step = std::function<StepResults(Builder& body, std::span<const ValueId> carries, std::span<const ValueId> xs)>;
  /// Results of the scan: last carries, then stacked ys.
  std::vector<ValueId> scan(std::vector<ValueId> inits, std::vector<ValueId> xs, Dim length, bool reverse,
                            const Step& step) {
    return scan(std::move(inits), std::move(xs), std::move(length), std::nullopt, reverse, step);
  }
  /// The same; ragged if `ragged` is set.
  std::vector<ValueId> scan(std::vector<ValueId> inits, std::vector<ValueId> xs, Dim length,
                            const std::optional<Ragged>& ragged, bool reverse, const Step& step);

  /// Emits one region of a cond. Both regions give results of the same types.
  using Branch = std::function<std::vector<ValueId>(Builder& body)>;
  std::vector<ValueId> cond(ValueId predicate, const Branch& yes, const Branch& no);
  /// `condition` emits a bool[] from the carries, `body` the next carries. Results: the last carries.
  using LoopPart = std::function<std::vector<ValueId>(Builder& body, std::span<const ValueId> carries)>;
  std::vector<ValueId> while_loop(std::vector<ValueId> inits, const LoopPart& condition, const LoopPart& body);

  /// The program's results.
  void ret(std::vector<ValueId> results) { block_.results = std::move(results); }

 private:
  Program& program_;
  Block& block_;
};

}  // namespace weft::ir
