#include "engine/calls.h"

#include <algorithm>

#include "engine/dense_calls.h"
#include "engine/engine.h"
#include "engine/movement_calls.h"
#include "engine/thread_scratch.h"
#include "interpreter/interpreter.h"
#include "passes/layout/prepack.h"
#include "runtime/kernels.h"
#include "runtime/share.h"

namespace weft::engine {
namespace {

using ir::Op;
using ir::OpCode;
using ir::ValueId;
using runtime::CallContext;
using runtime::CallFunction;
using runtime::Share;
using runtime::share_of;

/// A matrix in a buffer of the plan, perhaps a slice of columns of wider rows.
struct Matrix {
  int64_t buffer;
  runtime::DimExpr rows;
  int64_t columns, skip, stride;  ///< elements
  int64_t element_size;

  /// The first element; null if a matrix without rows has no memory.
  void* at(const CallContext& context) const {
    char* first = static_cast<char*>(context.buffers[buffer]);
    return first ? first + skip * element_size : nullptr;
  }
};

bool has_kernels(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

const runtime::DTypeKernels& kernels_of(DType dtype) { return runtime::kernels(runtime::active_isa(), dtype); }

/// A value as a matrix, whose rows are all dims but the last. Follows slices of columns to the memory that they view.
Matrix matrix_of(const codegen::Schedule& schedule, ValueId value) {
  const ir::Type& type = schedule.program->type(value);
  ir::Dim rows(1);
  for (size_t i = 0; i + 1 < type.shape.size(); ++i) rows = rows * type.shape[i];
  Matrix matrix{0, schedule.expression(rows), type.shape.back().constant(), 0, 0, size_of(type.dtype)};
  ValueId root = value;
  while (codegen::viewed(schedule, root) != root) {
    const Op& slice = *schedule.definition.at(root);
    matrix.skip += slice.attr<int64_t>("start");
    root = slice.operands[0];
  }
  matrix.buffer = schedule.buffer.at(root);
  matrix.stride = schedule.program->type(root).shape.back().constant();
  return matrix;
}

/// The same for a value that may be several ranges of columns side by side (the mark `ranges` of fuse).
std::vector<Matrix> matrices_of(const codegen::Schedule& schedule, ValueId value) {
  auto found = schedule.definition.find(value);
  if (found == schedule.definition.end() || !found->second->has("ranges")) return {matrix_of(schedule, value)};
  std::vector<Matrix> ranges;
  for (ValueId part : found->second->operands) ranges.push_back(matrix_of(schedule, part));
  return ranges;
}

bool is_matrix(const codegen::Schedule& schedule, ValueId value) {
  const ir::Type& type = schedule.program->type(value);
  return type.rank() >= 1 && type.shape.back().is_constant() && has_kernels(type.dtype);
}

CallFunction make_pack(const codegen::Schedule& schedule, const Op& op) {
  const ir::Type& source = schedule.program->type(op.operands[0]);
  ValueId root = op.operands[0];
  int64_t row = 0, column = 0;
  while (codegen::viewed(schedule, root) != root) {  // slices
    const Op& slice = *schedule.definition.at(root);
    (slice.attr<int64_t>("dim") == 0 ? row : column) += slice.attr<int64_t>("start");
    root = slice.operands[0];
  }
  const ir::Type& panels = schedule.program->type(op.results[0]);
  bool transposed = op.attr_or<bool>("transpose_b", false);
  runtime::PackArgs args{};
  args.groups = op.attr<int64_t>("groups");
  args.unroll = op.attr<int64_t>("unroll");
  args.k = source.shape[transposed ? 1 : 0].constant();
  args.n = source.shape[transposed ? 0 : 1].constant() / args.groups;
  args.ld = schedule.program->type(root).shape[1].constant();
  args.transposed = transposed;
  int64_t count = panels.shape[0].constant();
  int64_t from = schedule.buffer.at(root), to = schedule.buffer.at(op.results[0]);
  int64_t skip = (row * args.ld + column) * size_of(source.dtype);
  auto kernel = op.attr_or<bool>("pairs", false) ? runtime::pair_kernels(runtime::active_isa()).pack
                                                 : kernels_of(source.dtype).pack;
  return [=](const CallContext& context, std::string&) mutable {
    runtime::PackArgs mine = args;
    mine.source = static_cast<const char*>(context.buffers[from]) + skip;
    mine.destination = context.buffers[to];
    Share share = share_of(count, 1, context.thread, context.threads);
    if (share.first < share.last) kernel(mine, share.first, share.last);
    return true;
  };
}

/// Computes one member's share of the product of two matrices.
void run_outer(const runtime::DTypeKernels& kernels, const Matrix& a, const Matrix& b, void* c, int64_t ldc,
               const CallContext& context) {
  runtime::OuterArgs args{a.at(context), b.at(context), c,  a.rows.evaluate(context.symbols), a.columns, b.columns,
                          a.stride,      b.stride,      ldc};
  bool by_m = a.columns / kernels.outer_block_m >= b.columns / kernels.outer_block_n;
  Share m{0, a.columns}, n{0, b.columns};
  if (by_m)
    m = share_of(a.columns, kernels.outer_block_m, context.thread, context.threads);
  else
    n = share_of(b.columns, kernels.outer_block_n, context.thread, context.threads);
  if (m.first < m.last && n.first < n.last)
    kernels.outer(args, m.first, m.last, n.first, n.last, thread_scratch(kernels.outer_scratch_bytes));
}

CallFunction make_outer(const codegen::Schedule& schedule, const Op& op) {
  std::vector<Matrix> left = matrices_of(schedule, op.operands[0]), right = matrices_of(schedule, op.operands[1]);
  int64_t to = schedule.buffer.at(op.results[0]);
  const ir::Type& type = schedule.program->type(op.results[0]);
  int64_t ldc = type.shape[1].constant(), element_size = size_of(type.dtype);
  const runtime::DTypeKernels& kernels = kernels_of(type.dtype);
  return [=, &kernels](const CallContext& context, std::string&) {
    char* row = static_cast<char*>(context.buffers[to]);
    for (const Matrix& a : left) {
      char* c = row;
      for (const Matrix& b : right) {
        run_outer(kernels, a, b, c, ldc, context);
        c += b.columns * element_size;
      }
      row += a.columns * ldc * element_size;
    }
    return true;
  };
}

CallFunction make_column_sum(const codegen::Schedule& schedule, const Op& op, std::vector<Matrix> ranges) {
  int64_t to = schedule.buffer.at(op.results[0]);
  auto kernel = kernels_of(schedule.program->type(op.results[0]).dtype).column_sum;
  return [=](const CallContext& context, std::string&) {
    char* out = static_cast<char*>(context.buffers[to]);
    for (const Matrix& a : ranges) {
      Share share = share_of(a.columns, 64 / a.element_size, context.thread, context.threads);
      if (share.first < share.last)
        kernel(a.at(context), a.rows.evaluate(context.symbols), a.stride, out, share.first, share.last);
      out += a.columns * a.element_size;
    }
    return true;
  };
}

/// Whether the reduction sums over leading dims and the kept dims are constant, so that it sums down the columns of a
/// matrix.
bool sums_down_columns(const codegen::Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.operands[0]);
  std::vector<int64_t> dims = op.attr<std::vector<int64_t>>("dims");
  std::ranges::sort(dims);
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != static_cast<int64_t>(i)) return false;
  ir::Dim kept(1);
  for (size_t i = dims.size(); i < type.shape.size(); ++i) kept = kept * type.shape[i];
  return has_kernels(type.dtype) && kept.is_constant();
}

CallFunction make_reduction(const codegen::Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.operands[0]);
  size_t summed = op.attr<std::vector<int64_t>>("dims").size();
  if (summed + 1 == type.shape.size()) return make_column_sum(schedule, op, matrices_of(schedule, op.operands[0]));
  ir::Dim rows(1), columns(1);
  for (size_t i = 0; i < type.shape.size(); ++i)
    (i < summed ? rows : columns) = (i < summed ? rows : columns) * type.shape[i];
  int64_t width = columns.constant();
  return make_column_sum(
      schedule, op,
      {{schedule.buffer.at(op.operands[0]), schedule.expression(rows), width, 0, width, size_of(type.dtype)}});
}

/// Runs an op through the interpreter.
class Interpreted {
 public:
  Interpreted(const codegen::Schedule& schedule, const Op& op)
      : schedule_(schedule), program_(*schedule.program), op_(op) {
    reason_ = op.has("fallback") ? "scan: " + op.attr<std::string>("fallback") : std::string(info(op.code).name);
    reason_ = op.code == OpCode::kExtern ? "" : "interpreted " + reason_;
  }

  bool operator()(const CallContext& context, std::string&) const {
    if (context.thread != 0) return true;
    if (!reason_.empty()) count_fallback(reason_);
    ir::Bindings bindings;
    for (size_t i = 0; i < context.symbols.size(); ++i) bindings[context.plan.symbols[i]] = context.symbols[i];
    Memory memory{context, bindings, {}};
    std::vector<interpreter::View> operands;
    for (ValueId operand : op_.operands) operands.push_back(view(memory, operand));
    std::vector<std::vector<int64_t>> sizes;
    for (ValueId result : op_.results) sizes.push_back(interpreter::sizes_of(program_.type(result).shape, bindings));
    std::vector<interpreter::MutableView> results;
    for (size_t i = 0; i < op_.results.size(); ++i)
      results.push_back(
          {program_.type(op_.results[i]).dtype, sizes[i], context.buffers[schedule_.buffer.at(op_.results[i])]});
    interpreter::evaluate_op(program_, op_, operands, results, bindings, [&](ValueId id) { return view(memory, id); });
    return true;
  }

 private:
  struct Memory {
    const CallContext& context;
    const ir::Bindings& bindings;
    std::map<ValueId, interpreter::Array> computed;  // views, with their elements; other values, sizes only
  };

  interpreter::View view(Memory& memory, ValueId value) const {
    auto found = memory.computed.find(value);
    if (found == memory.computed.end()) found = memory.computed.emplace(value, materialise(memory, value)).first;
    auto buffer = schedule_.buffer.find(value);
    const void* data =
        buffer != schedule_.buffer.end() ? memory.context.buffers[buffer->second] : found->second.bytes.data();
    return {found->second.dtype, found->second.sizes, data};
  }

  interpreter::Array materialise(Memory& memory, ValueId value) const {
    const ir::Type& type = program_.type(value);
    std::vector<int64_t> sizes = interpreter::sizes_of(type.shape, memory.bindings);
    if (schedule_.buffer.contains(value)) {
      interpreter::Array named;
      named.dtype = type.dtype;
      named.sizes = std::move(sizes);
      return named;
    }
    const Op& op = *schedule_.definition.at(value);
    interpreter::Array result(type.dtype, std::move(sizes));
    std::vector<interpreter::View> operands;
    for (ValueId operand : op.operands) operands.push_back(view(memory, operand));
    interpreter::MutableView out = result.view();
    interpreter::evaluate_op(program_, op, operands, {&out, 1}, memory.bindings);
    return result;
  }

  const codegen::Schedule& schedule_;
  const ir::Program& program_;
  const Op& op_;
  std::string reason_;
};

}  // namespace

CallFunction make_call(const codegen::Schedule& schedule, const Op& op) {
  const ir::Program& program = *schedule.program;
  switch (op.code) {
    case OpCode::kPack:
      if (passes::has_kernel_layout(program, op)) return make_pack(schedule, op);
      break;
    case OpCode::kOuter:
      if (is_matrix(schedule, op.operands[0]) && is_matrix(schedule, op.operands[1])) return make_outer(schedule, op);
      break;
    case OpCode::kReduceSum:
      if (sums_down_columns(schedule, op)) return make_reduction(schedule, op);
      break;
    default:
      if (CallFunction movement = make_movement(schedule, op)) return movement;
  }
  if (CallFunction dense = make_dense(schedule, op)) return dense;
  return Interpreted(schedule, op);
}

}  // namespace weft::engine
