#include "interpreter/interpreter.h"

#include <cstring>
#include <deque>
#include <utility>

#include "base/batch_sizes.h"
#include "base/external.h"
#include "interpreter/evaluator.h"
#include "ir/binder.h"

namespace weft::interpreter {
namespace {

void copy_bytes(void* to, const View& from) {
  auto bytes = static_cast<size_t>(count_of(from.sizes) * size_of(from.dtype));
  if (bytes > 0) std::memcpy(to, from.data, bytes);
}

/// Element t along the first dim.
View step_of(const View& stack, int64_t t) {
  View step{stack.dtype, stack.sizes.subspan(1), nullptr};
  step.data = static_cast<const std::byte*>(stack.data) + t * count_of(step.sizes) * size_of(stack.dtype);
  return step;
}

}  // namespace

std::vector<int64_t> sizes_of(const ir::Shape& shape, const ir::Bindings& bindings) {
  std::vector<int64_t> sizes;
  for (const ir::Dim& dim : shape) sizes.push_back(ir::evaluate(dim, bindings));
  return sizes;
}

void Evaluator::make_room() {
  if (!views_.empty()) return;
  views_.resize(program_.values.size());
  memory_.resize(program_.values.size());
}

View Evaluator::view(ir::ValueId id) {
  make_room();
  if (!views_[id]) {
    internal_check(static_cast<bool>(captured_), "value {} is not computed", id);
    views_[id] = captured_(id);
  }
  return *views_[id];
}

void Evaluator::set(ir::ValueId id, View view) {
  make_room();
  views_[id] = view;
}

void Evaluator::run_ops(const ir::Block& block) {
  for (const ir::Op& op : block.ops) run_op(op);
}

void Evaluator::run_op(const ir::Op& op) {
  std::vector<View> operands;
  for (ir::ValueId id : op.operands) operands.push_back(view(id));
  make_room();
  std::vector<MutableView> results;
  for (ir::ValueId id : op.results) {
    const ir::Type& type = program_.type(id);
    if (!memory_[id]) memory_[id].emplace(type.dtype, sizes_of(type.shape, bindings_));
    results.push_back(memory_[id]->view());
    views_[id] = std::as_const(*memory_[id]).view();
  }
  run_kernel(Call{*this, op, operands, results});
}

void Evaluator::run_kernel(const Call& call) {
  static constexpr kernels::Kernel kKernels[] = {
#define WEFT_OP(Enum, text, arity, Class, type_rule, vjp_rule, interpreter, ...) kernels::interpreter,
#include "ir/ops.def"
  };
  kKernels[static_cast<size_t>(call.op.code)](call);
}

namespace {

/// For each step of a ragged scan: its number of rows, and its first packed row.
struct Steps {
  const ir::Ragged& ragged;
  std::span<const int64_t> batch_sizes;
  std::vector<int64_t> offsets;

  Steps(const ir::Ragged& ragged, const View& sizes, int64_t rows, int64_t packed)
      : ragged(ragged), batch_sizes(static_cast<const int64_t*>(sizes.data), static_cast<size_t>(sizes.sizes[0])) {
    std::string misfit = batch_sizes_misfit(batch_sizes, rows, packed);
    check(misfit.empty(), "{}", misfit);
    int64_t offset = 0;
    for (int64_t size : batch_sizes) {
      offsets.push_back(offset);
      offset += size;
    }
  }
};

/// `count` rows from `first` on.
View rows_of(const View& all, int64_t first, int64_t count, std::deque<std::vector<int64_t>>& sizes) {
  std::vector<int64_t>& mine = sizes.emplace_back(all.sizes.begin(), all.sizes.end());
  mine[0] = count;
  View rows{all.dtype, mine, nullptr};
  int64_t row_bytes = count_of(all.sizes.subspan(1)) * size_of(all.dtype);
  rows.data = static_cast<const std::byte*>(all.data) + first * row_bytes;
  return rows;
}

}  // namespace

/// Each step has an evaluator of its own, which binds the symbol of the rows to the step's number of rows.
void Evaluator::run_ragged_scan(const Call& call) {
  ir::ScanView scan(call.op);
  auto carries = static_cast<size_t>(scan.carries);
  Steps steps(*scan.ragged, call.operands.back(), value_of(scan.ragged->rows), value_of(scan.ragged->packed));
  auto is_rows = [&](ir::ValueId id) { return has_rows(program_.type(id), *scan.ragged); };
  std::vector<Array> now;
  for (size_t i = 0; i < carries; ++i) now.push_back(Array::copy_of(call.operands[i]));
  ir::Bindings bindings = bindings_;
  for (size_t step = 0; step < steps.batch_sizes.size(); ++step) {
    size_t t = scan.reverse ? steps.batch_sizes.size() - 1 - step : step;
    int64_t rows = steps.batch_sizes[t];
    bindings[scan.ragged->rows.name()] = rows;
    std::deque<std::vector<int64_t>> sizes;  // the sizes that the step's views refer to
    Captured outside = [&](ir::ValueId id) { return is_rows(id) ? rows_of(view(id), 0, rows, sizes) : view(id); };
    Evaluator inside(program_, bindings, outside);
    for (size_t i = 0; i < carries; ++i) {
      View carry = std::as_const(now[i]).view();
      inside.set(scan.carry_args[i], is_rows(scan.carry_args[i]) ? rows_of(carry, 0, rows, sizes) : carry);
    }
    for (size_t i = 0; i < scan.x_args.size(); ++i) {
      const View& stack = call.operands[carries + i];
      inside.set(scan.x_args[i], is_rows(scan.x_args[i]) ? rows_of(stack, steps.offsets[t], rows, sizes)
                                                         : step_of(stack, static_cast<int64_t>(t)));
    }
    inside.run_ops(scan.region);
    std::vector<Array> next = now;  // rows that the step doesn't have keep their carry
    for (size_t i = 0; i < carries; ++i) copy_bytes(next[i].bytes.data(), inside.view(scan.carry_outs[i]));
    for (size_t i = 0; i < scan.y_outs.size(); ++i) {
      View y = inside.view(scan.y_outs[i]);
      int64_t row_bytes = is_rows(scan.y_outs[i]) ? count_of(y.sizes.subspan(1)) * size_of(y.dtype) : 0;
      int64_t skipped = is_rows(scan.y_outs[i]) ? steps.offsets[t] * row_bytes
                                                : static_cast<int64_t>(t) * count_of(y.sizes) * size_of(y.dtype);
      copy_bytes(static_cast<std::byte*>(call.results[carries + i].data) + skipped, y);
    }
    now = std::move(next);
  }
  for (size_t i = 0; i < carries; ++i) copy_bytes(call.results[i].data, std::as_const(now[i]).view());
}

void Evaluator::run_scan(const Call& call) {
  ir::ScanView scan(call.op);
  if (scan.ragged) return run_ragged_scan(call);
  auto carries = static_cast<size_t>(scan.carries);
  // Two memories a carry, since a step may yield one carry as another.
  std::vector<Array> now;
  for (size_t i = 0; i < carries; ++i) now.push_back(Array::copy_of(call.operands[i]));
  std::vector<Array> next = now;
  int64_t length = value_of(scan.length);
  for (int64_t step = 0; step < length; ++step) {
    int64_t t = scan.reverse ? length - 1 - step : step;
    for (size_t i = 0; i < carries; ++i) set(scan.carry_args[i], std::as_const(now[i]).view());
    for (size_t i = 0; i < scan.x_args.size(); ++i) set(scan.x_args[i], step_of(call.operands[carries + i], t));
    run_ops(scan.region);
    for (size_t i = 0; i < carries; ++i) copy_bytes(next[i].bytes.data(), view(scan.carry_outs[i]));
    for (size_t i = 0; i < scan.y_outs.size(); ++i) {
      View y = view(scan.y_outs[i]);
      auto* stack = static_cast<std::byte*>(call.results[carries + i].data);
      copy_bytes(stack + t * count_of(y.sizes) * size_of(y.dtype), y);
    }
    std::swap(now, next);
  }
  for (size_t i = 0; i < carries; ++i) copy_bytes(call.results[i].data, std::as_const(now[i]).view());
}

void Evaluator::run_cond(const Call& call) {
  const ir::Block& region = call.op.regions[*static_cast<const uint8_t*>(call.operands[0].data) != 0 ? 0 : 1];
  run_ops(region);
  for (size_t i = 0; i < region.results.size(); ++i) copy_bytes(call.results[i].data, view(region.results[i]));
}

void Evaluator::run_while(const Call& call) {
  const ir::Block& condition = call.op.regions[0];
  const ir::Block& body = call.op.regions[1];
  std::vector<Array> now;
  for (const View& init : call.operands) now.push_back(Array::copy_of(init));
  std::vector<Array> next = now;
  auto enter = [&](const ir::Block& region) {
    for (size_t i = 0; i < now.size(); ++i) set(region.args[i], std::as_const(now[i]).view());
    run_ops(region);
  };
  auto holds = [&] {
    enter(condition);
    return *static_cast<const uint8_t*>(view(condition.results[0]).data) != 0;
  };
  while (holds()) {
    enter(body);
    for (size_t i = 0; i < now.size(); ++i) copy_bytes(next[i].bytes.data(), view(body.results[i]));
    std::swap(now, next);
  }
  for (size_t i = 0; i < now.size(); ++i) copy_bytes(call.results[i].data, std::as_const(now[i]).view());
}

void kernels::scan(const Call& call) { call.evaluator.run_scan(call); }
void kernels::cond(const Call& call) { call.evaluator.run_cond(call); }
void kernels::while_loop(const Call& call) { call.evaluator.run_while(call); }

void kernels::custom_vjp(const Call& call) {
  const size_t skip = call.operands.size() - call.results.size();
  for (size_t i = 0; i < call.results.size(); ++i) copy_bytes(call.results[i].data, call.operands[skip + i]);
}

void kernels::external(const Call& call) {
  std::vector<ExternTensor> operands, results;
  for (const View& view : call.operands) operands.push_back({view.dtype, view.sizes, const_cast<void*>(view.data)});
  for (const MutableView& view : call.results) results.push_back({view.dtype, view.sizes, view.data});
  run_extern(call.op.attr<std::string>("call"), operands, results);
}

std::vector<Array> evaluate(const ir::Program& program, std::span<const Array> inputs) {
  std::vector<std::vector<int64_t>> sizes;
  for (const Array& input : inputs) sizes.push_back(input.sizes);
  ir::Bindings bindings = ir::bind(program, sizes);
  Captured nothing;
  Evaluator evaluator(program, bindings, nothing);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Type& type = program.type(program.body.args[i]);
    check(inputs[i].dtype == type.dtype, "input {}: expected {}, but got {}", i, to_string(type),
          name_of(inputs[i].dtype));
    evaluator.set(program.body.args[i], inputs[i].view());
  }
  evaluator.run_ops(program.body);
  std::vector<Array> results;
  for (ir::ValueId id : program.body.results) results.push_back(Array::copy_of(evaluator.view(id)));
  return results;
}

void evaluate_op(const ir::Program& program, const ir::Op& op, std::span<const View> operands,
                 std::span<const MutableView> results, const ir::Bindings& bindings, const Captured& captured) {
  Evaluator evaluator(program, bindings, captured);
  evaluator.run_kernel(Call{evaluator, op, operands, results});
}

}  // namespace weft::interpreter
