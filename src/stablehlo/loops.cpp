// Ops with regions. A scan becomes a while that counts its steps. Its loop values are the count, the carries, and the
// stacks of ys, each written one step at a time.
#include <fmt/format.h>

#include <limits>

#include "stablehlo/lowerings.h"

namespace weft::stablehlo::lowerings {
namespace {

using ir::Block;
using ir::ValueId;

Tensor number(Emitter& emit, int64_t value, DType dtype) {
  return emit.constant(static_cast<double>(value), {dtype, {}});
}

Sizes with_rows(Sizes sizes, int64_t rows) {
  sizes[0] = rows;
  return sizes;
}

/// A scan that is being written as a while.
class ScanLoop {
 public:
  explicit ScanLoop(const Site& site)
      : emit_(site.emit()), writer_(site.writer), scan_(site.op), length_(writer_.size(scan_.length)) {
    // Ragged steps count rows in i64, as their batch sizes are.
    const bool is_long = length_ > std::numeric_limits<int32_t>::max();
    index_ = scan_.ragged || is_long ? DType::kI64 : DType::kI32;
    if (scan_.ragged) {
      rows_ = writer_.size(scan_.ragged->rows);
      packed_ = writer_.size(scan_.ragged->packed);
    }
  }

  void write() {
    if (length_ == 0) return write_no_steps();
    prepare_xs();
    const std::vector<Tensor> inits = initial();
    std::vector<const Block*> reads{&scan_.region};
    const std::vector<Tensor> last = writer_.write_while(
        with_xs(inits), reads, [&](std::span<const Tensor> own) { return condition(own); },
        [&](std::span<const Tensor> own) { return body(own); });
    const size_t first = first_carry();
    for (size_t i = 0; i < carries(); ++i) writer_.set(scan_.carry_results[i], last[first + i]);
    for (size_t i = 0; i < ys(); ++i) {
      const Tensor& stack = last[first + carries() + i];
      const bool has_rows = is_packed(scan_.y_outs[i]);
      writer_.set(scan_.stacks[i], has_rows ? emit_.slice(stack, 0, 0, packed_) : stack);
    }
  }

 private:
  size_t carries() const { return scan_.carry_args.size(); }
  size_t ys() const { return scan_.y_outs.size(); }
  /// Before the carries stands the count of steps, and in a ragged scan the first row of the step.
  size_t first_carry() const { return scan_.ragged ? 2 : 1; }
  size_t first_x() const { return first_carry() + carries() + ys(); }

  /// The rows of the step that is being written. Only for a ragged scan.
  StepRows own_rows() const { return {*scan_.ragged, count_}; }

  /// Whether a value's stack is packed, with a row for each row of each step.
  bool is_packed(ValueId id) const { return scan_.ragged && ir::has_rows(writer_.ir_type(id), *scan_.ragged); }

  void write_no_steps() {
    for (size_t i = 0; i < carries(); ++i) writer_.set(scan_.carry_results[i], writer_.value(scan_.inits[i]));
    for (ValueId stack : scan_.stacks) writer_.set(stack, emit_.constant(0, writer_.type(stack)));
  }

  /// Pads packed rows with `rows_` rows of zeros, since each step reads `rows_` rows, however many it has.
  void prepare_xs() {
    for (size_t i = 0; i < scan_.xs.size(); ++i) {
      const Tensor x = writer_.value(scan_.xs[i]);
      xs_.push_back(is_packed(scan_.x_args[i]) ? emit_.pad(x, 0, 0, rows_) : x);
    }
    if (scan_.ragged) xs_.push_back(writer_.value(scan_.ragged->batch_sizes));
  }

  std::vector<Tensor> initial() {
    std::vector<Tensor> inits{number(emit_, 0, index_)};
    if (scan_.ragged) inits.push_back(number(emit_, scan_.reverse ? packed_ : 0, index_));
    for (ValueId init : scan_.inits) inits.push_back(writer_.value(init));
    for (size_t i = 0; i < ys(); ++i) {
      TensorType type = writer_.type(scan_.stacks[i]);
      if (is_packed(scan_.y_outs[i])) type.sizes[0] += rows_;
      inits.push_back(emit_.constant(0, type));
    }
    return inits;
  }

  std::vector<Tensor> with_xs(std::vector<Tensor> inits) const {
    inits.insert(inits.end(), xs_.begin(), xs_.end());
    return inits;
  }

  std::vector<Tensor> condition(std::span<const Tensor> own) {
    return {emit_.compare("LT", own[0], number(emit_, length_, index_))};
  }

  std::vector<Tensor> body(std::span<const Tensor> own) {
    std::vector<Tensor> next{emit_.binary("add", own[0], number(emit_, 1, index_))};
    const Tensor step = scan_.reverse ? emit_.binary("subtract", number(emit_, length_ - 1, index_), own[0]) : own[0];
    const std::span<const Tensor> xs = own.subspan(first_x());
    Tensor offset;  // of the step's first packed row
    if (scan_.ragged) {
      count_ = emit_.reshape(emit_.dynamic_slice(xs.back(), step, 0, 1), {});
      const Tensor moved = emit_.binary(scan_.reverse ? "subtract" : "add", own[1], count_);
      offset = scan_.reverse ? moved : own[1];
      next.push_back(moved);
      writer_.enter_rows(own_rows());
    }
    for (size_t i = 0; i < carries(); ++i) writer_.set(scan_.carry_args[i], own[first_carry() + i]);
    for (size_t i = 0; i < scan_.xs.size(); ++i) writer_.set(scan_.x_args[i], x_of(i, xs[i], step, offset));
    writer_.write_ops(scan_.region);
    for (size_t i = 0; i < carries(); ++i) {
      const Tensor carry = writer_.value(scan_.carry_outs[i]);
      const bool has_rows = is_packed(scan_.carry_outs[i]);
      next.push_back(has_rows ? writer_.masked(own_rows(), carry, own[first_carry() + i]) : carry);
    }
    for (size_t i = 0; i < ys(); ++i)
      next.push_back(stack_with(own[first_carry() + carries() + i], scan_.y_outs[i], step, offset));
    if (scan_.ragged) writer_.leave_rows();
    next.insert(next.end(), xs.begin(), xs.end());
    return next;
  }

  Tensor x_of(size_t i, const Tensor& stack, const Tensor& step, const Tensor& offset) {
    const TensorType type = writer_.type(scan_.x_args[i]);
    if (is_packed(scan_.x_args[i])) return emit_.dynamic_slice(stack, offset, 0, rows_);
    return emit_.reshape(emit_.dynamic_slice(stack, step, 0, 1), type.sizes);
  }

  /// The stack with a step's y written to it. Rows that the step doesn't have belong to other steps, and stay
  /// unchanged.
  Tensor stack_with(const Tensor& stack, ValueId id, const Tensor& step, const Tensor& offset) {
    const Tensor y = writer_.value(id);
    if (is_packed(id)) {
      const Tensor before = emit_.dynamic_slice(stack, offset, 0, rows_);
      return emit_.dynamic_update(stack, writer_.masked(own_rows(), y, before), offset, 0);
    }
    return emit_.dynamic_update(stack, emit_.reshape(y, with_rows(stack.type.sizes, 1)), step, 0);
  }

  Emitter& emit_;
  Writer& writer_;
  ir::ScanView scan_;
  int64_t length_;
  DType index_;
  int64_t rows_ = 0, packed_ = 0;  ///< of a ragged scan
  Tensor count_;                   ///< of the step's rows
  std::vector<Tensor> xs_;         ///< operands that are read step by step
};

}  // namespace

void scan(const Site& site) { ScanLoop(site).write(); }

void cond(const Site& site) {
  Emitter& emit = site.emit();
  const std::string name = emit.new_name();
  std::vector<Tensor> results;
  for (size_t i = 0; i < site.op.results.size(); ++i) results.push_back({fmt::format("{}#{}", name, i), site.type(i)});
  check(!results.empty(), "stablehlo: a cond without results has no lowering");
  emit.line(fmt::format("{}:{} = \"stablehlo.if\"({}) ({{", name, results.size(), site.operand(0).name));
  for (size_t i = 0; i < 2; ++i) {
    const Block& region = site.op.regions[i];
    emit.indent();
    site.writer.write_ops(region);
    const std::vector<Tensor> yielded = site.writer.values(region.results);
    emit.line(fmt::format("stablehlo.return {} : {}", names_of(yielded), types_of(yielded)));
    emit.dedent();
    if (i == 0) emit.line("}, {");
  }
  emit.line(
      fmt::format("}}) : (tensor<i1>) -> {}", results.size() == 1 ? types_of(results) : "(" + types_of(results) + ")"));
  for (size_t i = 0; i < results.size(); ++i) site.writer.set(site.op.results[i], results[i]);
}

void while_loop(const Site& site) {
  Writer& writer = site.writer;
  const Block& condition = site.op.regions[0];
  const Block& body = site.op.regions[1];
  auto part = [&](const Block& region) {
    return [&](std::span<const Tensor> own) {
      for (size_t i = 0; i < own.size(); ++i) writer.set(region.args[i], own[i]);
      writer.write_ops(region);
      return writer.values(region.results);
    };
  };
  const std::vector<const Block*> reads{&condition, &body};
  const std::vector<Tensor> last =
      writer.write_while(writer.values(site.op.operands), reads, part(condition), part(body));
  for (size_t i = 0; i < last.size(); ++i) writer.set(site.op.results[i], last[i]);
}

void custom_vjp(const Site& site) {
  const size_t skip = site.op.operands.size() - site.op.results.size();
  for (size_t i = 0; i < site.op.results.size(); ++i) site.writer.set(site.op.results[i], site.operand(skip + i));
}

}  // namespace weft::stablehlo::lowerings
