#include "passes/differentiation/own_derivatives.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "passes/rewrite.h"
#include "passes/simplification/folded.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::ValueId;

/// What is known of a value when the named inputs are zero.
struct Known {
  std::optional<double> all;  ///< the number that all elements equal, if known
  bool depends = false;       ///< on the named inputs: with `all` unknown it may be anything, infinite too

  bool is_zero() const { return all == 0; }
  /// A finite number, about which nothing else is known.
  bool is_free() const { return !all && !depends; }
  bool is_finite() const { return is_free() || (all && std::isfinite(*all)); }
};

/// The result of an elementwise op on a number: exact enough to tell what is zero, and which of two numbers is larger.
std::optional<double> of_number(OpCode code, double x) {
  switch (code) {
    case OpCode::kCopy:
    case OpCode::kStopGradient:
      return x;
    case OpCode::kSign:
      return (x > 0) - (x < 0);
    case OpCode::kExp:
      return std::exp(x);
    case OpCode::kExpm1:
      return std::expm1(x);
    case OpCode::kLog1p:
      return std::log1p(x);
    case OpCode::kTanh:
      return std::tanh(x);
    case OpCode::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case OpCode::kRelu:
      return std::max(x, 0.0);
    case OpCode::kSin:
      return std::sin(x);
    case OpCode::kCos:
      return std::cos(x);
    case OpCode::kErf:
      return std::erf(x);
    case OpCode::kNot:
      return x == 0;
    default:
      return folded(code, x, x);
  }
}

std::optional<double> of_numbers(OpCode code, double a, double b) {
  if (const std::optional<bool> is_so = compared(code, a, b)) return *is_so;
  switch (code) {
    case OpCode::kPow:
      return std::pow(a, b);
    case OpCode::kMaximum:
      return std::max(a, b);
    case OpCode::kMinimum:
      return std::min(a, b);
    case OpCode::kAnd:
      return a != 0 && b != 0;
    case OpCode::kOr:
      return a != 0 || b != 0;
    default:
      return folded(code, a, b);
  }
}

double constant(const Op& op) {
  const ir::Attr& value = op.attrs.at("value");
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  return std::get<double>(value);
}

class Analysis {
 public:
  explicit Analysis(const ir::Program& program) : program_(program) {}

  bool run(size_t first_zero) {
    const Block& body = program_.body;
    for (size_t i = first_zero; i < body.args.size(); ++i) known_[body.args[i]] = {0.0, true};
    for (const Op& op : body.ops) {
      const Known found = known(op);
      for (ValueId result : op.results) known_[result] = found;
      if (op.code == OpCode::kCustomVjp)
        for (size_t i = 0; i < op.results.size(); ++i) known_[op.results[i]] = known_[value_of(op, i)];
    }
    return std::ranges::all_of(body.results, [&](ValueId result) {
      return !is_floating(program_.type(result).dtype) || known_[result].is_zero();
    });
  }

 private:
  Known known(const Op& op) {
    std::vector<Known> operands;
    for (ValueId each : op.operands) operands.push_back(known_[each]);
    const bool depends = std::ranges::any_of(operands, &Known::depends);
    // Captured values of a region are not among the operands, so they may depend on anything.
    return {number(op, operands), depends || !op.regions.empty()};
  }

  /// The number that all elements of the result equal, if it is known.
  std::optional<double> number(const Op& op, const std::vector<Known>& operands) const {
    const auto is_same = [&] {
      return !operands.empty() &&
             std::ranges::all_of(operands, [&](const Known& each) { return each.all && each.all == operands[0].all; });
    };
    switch (op.code) {
      case OpCode::kConstant:
        return constant(op);
      case OpCode::kCast:  // every type has 0 and 1; a cast to integers or bool changes other numbers
        if (is_floating(program_.type(op.results[0]).dtype) || operands[0].is_zero() || operands[0].all == 1)
          return operands[0].all;
        return std::nullopt;
      case OpCode::kSelect:
        if (operands[0].all) return operands[*operands[0].all != 0 ? 1 : 2].all;
        return operands[1].all == operands[2].all ? operands[1].all : std::nullopt;
      case OpCode::kBroadcast:
      case OpCode::kReshape:
      case OpCode::kTranspose:
      case OpCode::kSlice:
      case OpCode::kReverse:
      case OpCode::kGather:
      case OpCode::kDynamicSlice:
      case OpCode::kReduceMax:
        return operands[0].all;
      case OpCode::kConcat:
        return is_same() ? operands[0].all : std::nullopt;
      case OpCode::kPad:
      case OpCode::kReduceSum:
        return operands[0].is_zero() ? std::optional(0.0) : std::nullopt;
      case OpCode::kScatterAdd:
        return operands[1].is_zero() ? std::optional(0.0) : std::nullopt;
      case OpCode::kDynamicUpdate:
        return operands[0].is_zero() && operands[1].is_zero() ? std::optional(0.0) : std::nullopt;
      case OpCode::kMul:
      case OpCode::kMatmul:
      case OpCode::kOuter:
      case OpCode::kBatchMatmul:
        if ((operands[0].is_zero() && operands[1].is_finite()) || (operands[1].is_zero() && operands[0].is_finite()))
          return 0.0;
        break;
      case OpCode::kDiv:
        if (operands[0].is_zero() && operands[1].is_free()) return 0.0;
        break;
      default:
        break;
    }
    if (operands.size() == 1 && operands[0].all) return of_number(op.code, *operands[0].all);
    if (operands.size() == 2 && operands[0].all && operands[1].all)
      return of_numbers(op.code, *operands[0].all, *operands[1].all);
    return std::nullopt;
  }

  const ir::Program& program_;
  std::unordered_map<ValueId, Known> known_;
};

/// How a value depends on the named inputs.
enum class Kind : uint8_t { kZero, kFixed, kLinear, kOther };

Kind worst(const std::vector<Kind>& kinds) { return kinds.empty() ? Kind::kFixed : *std::ranges::max_element(kinds); }

/// For an op that is linear in all operands together. The sum of a linear and a fixed operand isn't linear.
Kind linear_in_all(const std::vector<Kind>& kinds) {
  const bool is_mixed = std::ranges::count(kinds, Kind::kFixed) > 0 && std::ranges::count(kinds, Kind::kLinear) > 0;
  return is_mixed ? Kind::kOther : worst(kinds);
}

/// For an op that is linear in `operand` while the other operands are fixed.
Kind linear_in(const std::vector<Kind>& kinds, size_t operand) {
  for (size_t i = 0; i < kinds.size(); ++i)
    if (i != operand && kinds[i] > Kind::kFixed) return Kind::kOther;
  return worst(kinds);
}

Kind kind_of(const ir::Program& program, const Op& op, const std::vector<Kind>& kinds) {
  if (!op.regions.empty()) return Kind::kOther;
  if (op.code == OpCode::kConstant) return constant(op) == 0 ? Kind::kZero : Kind::kFixed;
  const bool keeps_zero = op.code == OpCode::kCopy || op.code == OpCode::kStopGradient || op.code == OpCode::kCast ||
                          ir::traits_of(op.code).is_linear;
  if (!kinds.empty() && worst(kinds) == Kind::kZero && keeps_zero) return Kind::kZero;
  if (worst(kinds) <= Kind::kFixed) return Kind::kFixed;
  switch (op.code) {
    case OpCode::kCopy:
    case OpCode::kStopGradient:
    case OpCode::kReduceSum:
      return kinds[0];
    case OpCode::kCast:
      return is_floating(program.type(op.results[0]).dtype) ? kinds[0] : Kind::kOther;
    case OpCode::kMul:
    case OpCode::kMatmul:
    case OpCode::kOuter:
    case OpCode::kBatchMatmul:
      return kinds[0] > Kind::kFixed ? linear_in(kinds, 0) : linear_in(kinds, 1);
    case OpCode::kDiv:
    case OpCode::kGather:
    case OpCode::kDynamicSlice:
      return linear_in(kinds, 0);
    case OpCode::kScatterAdd:
      return linear_in(kinds, 1);
    case OpCode::kSelect:
      return kinds[0] > Kind::kFixed ? Kind::kOther : linear_in_all({kinds[1], kinds[2]});
    default:
      return ir::traits_of(op.code).is_linear ? linear_in_all(kinds) : Kind::kOther;
  }
}

}  // namespace

bool is_linear(const ir::Program& program, size_t first) {
  std::unordered_map<ValueId, Kind> kinds;
  for (size_t i = 0; i < program.body.args.size(); ++i)
    kinds[program.body.args[i]] = i >= first ? Kind::kLinear : Kind::kFixed;
  for (const Op& op : program.body.ops) {
    std::vector<Kind> operands;
    for (ValueId each : op.operands) operands.push_back(kinds.at(each));
    const Kind kind = kind_of(program, op, operands);
    for (size_t i = 0; i < op.results.size(); ++i)
      kinds[op.results[i]] = op.code == OpCode::kCustomVjp ? kinds.at(value_of(op, i)) : kind;
  }
  return std::ranges::all_of(program.body.results, [&](ValueId result) {
    return !is_floating(program.type(result).dtype) || kinds.at(result) == Kind::kLinear ||
           kinds.at(result) == Kind::kZero;
  });
}

ir::Program without_cotangents(const ir::Program& given, const std::vector<bool>& absent) {
  ir::Program program = given;
  std::unordered_map<ValueId, Kind> kinds;
  Substitution zeros;
  std::vector<Op> ops;
  for (size_t i = 0; i < program.body.args.size(); ++i) {
    const ValueId arg = program.body.args[i];
    kinds[arg] = absent[i] ? Kind::kLinear : Kind::kFixed;
    if (!absent[i]) continue;
    zeros.set(arg, program.new_value(ir::Type(program.type(arg))));
    ops.push_back({OpCode::kConstant, {}, {zeros(arg)}, {{"value", 0.0}}, {}});
  }
  for (Op& op : program.body.ops) {
    std::vector<Kind> operands;
    for (ValueId each : op.operands) operands.push_back(kinds.at(each));
    const Kind kind = kind_of(program, op, operands);
    for (ValueId result : op.results) kinds[result] = kind;
    if (kind == Kind::kLinear) op = {OpCode::kConstant, {}, std::move(op.results), {{"value", 0.0}}, {}};
    ops.push_back(std::move(op));
  }
  program.body.ops = std::move(ops);
  substitute(program.body, zeros);
  return program;
}

bool vanishes(const ir::Program& program, size_t first) { return Analysis(program).run(first); }

}  // namespace weft::passes
