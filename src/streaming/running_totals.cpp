#include "streaming/running_totals.h"

#include <limits>
#include <numeric>
#include <optional>

#include "ir/builder.h"
#include "ir/text/call_text.h"
#include "passes/rewrite.h"

namespace weft::streaming {

using ir::Builder;
using ir::CallText;
using ir::Op;
using ir::OpCode;
using ir::Shape;
using ir::Type;
using ir::ValueId;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// How a running total starts, and how it combines the next element.
struct Total {
  OpCode combine;
  double first;
  bool has_places;  ///< a second result: where the extremum is
  bool is_sum = false;
};

std::optional<Total> total_of(std::string_view name) {
  if (name == "aten.cumsum.default") return Total{OpCode::kAdd, 0, false, true};
  if (name == "aten.cumprod.default") return Total{OpCode::kMul, 1, false};
  if (name == "aten.logcumsumexp.default") return Total{OpCode::kLogaddexp, -kInfinity, false};
  if (name == "aten.cummax.default") return Total{OpCode::kGe, -kInfinity, true};
  if (name == "aten.cummin.default") return Total{OpCode::kLe, kInfinity, true};
  return std::nullopt;
}

/// The permutation that moves dim `dim` to the front. inverse() is the way back.
std::vector<int64_t> to_front(int64_t rank, int64_t dim) {
  std::vector<int64_t> perm{dim};
  for (int64_t i = 0; i < rank; ++i)
    if (i != dim) perm.push_back(i);
  return perm;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& perm) {
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return back;
}

/// The running sums of x [T, ...], of f32. What an addition rounds off is kept and added up by itself (D. E. Knuth, The
/// Art of Computer Programming, volume 2, 4.2.2, theorem B): a stream has no end, and PyTorch adds up in f64, which not
/// all targets have. A sum that is infinite stays so.
ValueId sums(Builder& builder, ValueId x) {
  const Type stack = builder.type(x);
  const ValueId none = builder.constant(0, ir::step_of(stack, std::nullopt));
  return builder.scan({none, none}, {x}, stack.shape[0], false, [&](Builder& body, auto carries, auto xs) {
    const ValueId sum = body.add(carries[0], xs[0]), taken = body.sub(sum, carries[0]);
    const ValueId lost = body.add(body.sub(carries[0], body.sub(sum, taken)), body.sub(xs[0], taken));
    const ValueId is_number = body.binary(OpCode::kEq, lost, lost);
    const ValueId rest = body.select(is_number, body.add(carries[1], lost), carries[1]);
    return Builder::StepResults{{sum, rest}, {body.add(sum, rest)}};
  })[2];
}

/// The running totals of x along its first dim; for extrema their indices too.
std::vector<ValueId> totals(Builder& builder, ValueId x, const Total& total) {
  const Type stack = builder.type(x);
  const Type step = ir::step_of(stack, std::nullopt);
  const ValueId first = builder.constant(total.first, step);
  if (total.is_sum && stack.dtype == DType::kF32) return {sums(builder, x)};
  if (!total.has_places) {
    return builder.scan({first}, {x}, stack.shape[0], false, [&](Builder& body, auto carries, auto xs) {
      const ValueId next = body.binary(total.combine, carries[0], xs[0]);
      return Builder::StepResults{{next}, {next}};
    });
  }
  const Type places{DType::kI64, stack.shape}, place{DType::kI64, step.shape};
  const ValueId numbers = builder.emit(OpCode::kIota, {}, {{"dim", int64_t{0}}}, &places);
  std::vector<ValueId> results =
      builder.scan({first, builder.constant(0, place)}, {x, numbers}, stack.shape[0], false,
                   [&](Builder& body, auto carries, auto xs) {
                     // Of equal elements the later one is taken; a NaN stays.
                     const ValueId is_better = body.binary(OpCode::kAnd, body.binary(total.combine, xs[0], carries[0]),
                                                           body.binary(OpCode::kEq, carries[0], carries[0]));
                     const ValueId takes = body.binary(OpCode::kOr, is_better, body.binary(OpCode::kNe, xs[0], xs[0]));
                     const ValueId next = body.select(takes, xs[0], carries[0]);
                     const ValueId at = body.select(takes, xs[1], carries[1]);
                     return Builder::StepResults{{next, at}, {next, at}};
                   });
  return {results[2], results[3]};
}

void rewrite(Builder& builder, const Op& op, passes::Substitution& replaced) {
  const CallText call("weft.stream", op.attr<std::string>("call"), {{}});
  const Total total = *total_of(call.name());
  const Type result = builder.type(op.results[0]);
  const int64_t dim = call.integer(1) < 0 ? call.integer(1) + result.rank() : call.integer(1);
  const bool is_half = result.dtype == DType::kF16 || result.dtype == DType::kBF16;
  const ValueId wide =
      builder.cast(replaced(op.operands[0]), is_half && !total.has_places ? DType::kF32 : result.dtype);
  const std::vector<int64_t> perm = to_front(result.rank(), dim);
  std::vector<ValueId> found = totals(builder, builder.transpose(wide, perm), total);
  if (!total.has_places && found.size() > 1) found.erase(found.begin());
  for (size_t i = 0; i < op.results.size(); ++i) {
    const ValueId back = builder.transpose(found[i], inverse(perm));
    replaced.set(op.results[i], builder.cast(back, builder.type(op.results[i]).dtype));
  }
}

/// Running extrema of integers aren't among them: they would need the least integer as a constant.
bool is_running_total(const ir::Program& program, const Op& op) {
  if (!ir::traits_of(op.code).calls_out) return false;
  const CallText call("weft.stream", op.attr<std::string>("call"), {{}});
  const std::optional<Total> total = total_of(call.name());
  const Type& type = program.type(op.results[0]);
  return total && type.rank() > 0 && (is_floating(type.dtype) || total->first == 0 || total->first == 1);
}

}  // namespace

void running_totals(ir::Program& program) {
  std::vector<Op> ops = std::move(program.body.ops);
  program.body.ops.clear();
  Builder builder(program, program.body);
  passes::Substitution replaced;
  for (Op& op : ops) {
    if (is_running_total(program, op)) {
      const size_t first = program.body.ops.size();
      rewrite(builder, op, replaced);
      passes::copy_note(op, std::span(program.body.ops).subspan(first));
    } else {
      passes::substitute(op, replaced);
      program.body.ops.push_back(std::move(op));
    }
  }
  for (ValueId& result : program.body.results) result = replaced(result);
}

}  // namespace weft::streaming
