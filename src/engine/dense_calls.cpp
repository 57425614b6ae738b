#include "engine/dense_calls.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "engine/thread_scratch.h"
#include "runtime/kernels.h"
#include "runtime/share.h"

namespace weft::engine {
namespace {

using ir::Dim;
using ir::Op;
using ir::OpCode;
using ir::Shape;
using ir::ValueId;
using runtime::CallContext;
using runtime::CallFunction;
using runtime::DimExpr;
using runtime::Share;
using runtime::share_of;

Dim count_of(const Shape& shape, size_t first, size_t last) {
  Dim count(1);
  for (size_t i = first; i < last; ++i) count = count * shape[i];
  return count;
}

char* at(const CallContext& context, int64_t buffer, int64_t bytes) {
  return static_cast<char*>(context.buffers[buffer]) + bytes;
}

// ---- products

/// `batches` products of matrices, consecutive in memory.
struct Products {
  int64_t a, b, c;  ///< buffers
  DimExpr batches, m, n, k;
  bool transpose_a, transpose_b;
  int64_t element_size;
  const runtime::DTypeKernels* kernels;

  void run(const CallContext& context) const {
    int64_t m = this->m.evaluate(context.symbols), n = this->n.evaluate(context.symbols);
    int64_t k = this->k.evaluate(context.symbols), batches = this->batches.evaluate(context.symbols);
    runtime::GemmArgs args{nullptr, nullptr,     nullptr,    m, n, k, transpose_a ? m : k, transpose_b ? k : n,
                           n,       transpose_a, transpose_b};
    Share all{0, batches}, rows{0, m}, columns{0, n};
    share(context, batches, m, n, all, rows, columns);
    if (rows.first >= rows.last || columns.first >= columns.last || all.first >= all.last) return;
    void* scratch = thread_scratch(std::max<int64_t>(1, k) * kernels->gemm_block_n * element_size);
    for (int64_t i = all.first; i < all.last; ++i) {
      args.a = at(context, a, i * m * k * element_size);
      args.b = at(context, b, i * k * n * element_size);
      args.c = at(context, c, i * m * n * element_size);
      kernels->gemm(args, rows.first, rows.last, columns.first, columns.last, scratch);
    }
  }

  /// Members share whole products if there are enough of them, else the parts of each.
  void share(const CallContext& context, int64_t batches, int64_t m, int64_t n, Share& all, Share& rows,
             Share& columns) const {
    constexpr int64_t kRowBlock = 8, kEnoughRows = 64;
    if (context.threads == 1) return;
    if (batches % context.threads == 0 || batches >= 4 * context.threads)
      all = share_of(batches, 1, context.thread, context.threads);
    else if (m >= kEnoughRows * context.threads)
      rows = share_of(m, kRowBlock, context.thread, context.threads);
    else
      columns = share_of(n, kernels->gemm_block_n, context.thread, context.threads);
  }
};

CallFunction make_products(const codegen::Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.results[0]);
  const Shape& a = schedule.program->type(op.operands[0]).shape;
  const Shape& b = schedule.program->type(op.operands[1]).shape;
  if (type.dtype != DType::kF32 && type.dtype != DType::kF64) return {};
  bool batched = op.code == OpCode::kBatchMatmul;
  bool transpose_a = op.attr_or("transpose_a", false), transpose_b = op.attr_or("transpose_b", false);
  size_t leading = batched ? type.shape.size() - 2 : 0;
  size_t last = a.size() - 1;
  Products products{.a = schedule.buffer.at(op.operands[0]),
                    .b = schedule.buffer.at(op.operands[1]),
                    .c = schedule.buffer.at(op.results[0]),
                    .batches = schedule.expression(count_of(type.shape, 0, leading)),
                    .m = schedule.expression(count_of(type.shape, leading, type.shape.size() - 1)),
                    .n = schedule.expression(b[b.size() - (transpose_b ? 2 : 1)]),
                    .k = schedule.expression(a[batched && transpose_a ? last - 1 : last]),
                    .transpose_a = transpose_a,
                    .transpose_b = transpose_b,
                    .element_size = size_of(type.dtype),
                    .kernels = &runtime::kernels(runtime::active_isa(), type.dtype)};
  return [=](const CallContext& context, std::string&) {
    products.run(context);
    return true;
  };
}

// ---- reductions

/// Neighbouring dims of the operand as one: either all are folded away, or all are kept.
struct FoldDim {
  DimExpr size;
  bool folded;
};

/// A fold over dims of a dense operand. It is a loop over folds of matrices: the last folded dim gives the rows, the
/// kept dims behind it the columns.
class Reduction {
 public:
  Reduction(std::vector<FoldDim> dims, size_t place, bool is_sum, int64_t element_size)
      : dims_(std::move(dims)), place_(place), is_sum_(is_sum), element_size_(element_size) {}

  void run(const CallContext& context, const char* x, char* out) const {
    Sizes sizes;
    for (const FoldDim& dim : dims_) sizes.push_back(dim.size.evaluate(context.symbols));
    int64_t columns = 1, kept = 1;
    size_t last = dims_.size();
    if (!dims_.back().folded) columns = sizes[--last];
    if (columns == 0) return;
    for (size_t i = 0; i < last; ++i)
      if (!dims_[i].folded) kept *= sizes[i];
    // Members share the kept dims in front, or the columns if these dims are too small.
    bool by_columns = columns >= 64 * context.threads || kept < context.threads;
    Share part{0, columns}, outer{0, kept};
    if (by_columns)
      part = share_of(columns, 64 / element_size_, context.thread, context.threads);
    else
      outer = share_of(kept, 1, context.thread, context.threads);
    if (part.first >= part.last) return;
    for (int64_t i = outer.first; i < outer.last; ++i)
      fill(out + (i * columns + part.first) * element_size_, part.last - part.first);
    if (std::ranges::find(sizes, 0) != sizes.end()) return;  // a fold over nothing is the neutral element
    Walk walk{sizes, last, columns, part, outer, x, out};
    descend(walk, 0, 0, 0);
  }

 private:
  using Sizes = std::vector<int64_t>;

  struct Walk {
    const Sizes& sizes;
    size_t last;  ///< dim last-1 is folded by the kernel; the dims before that are walked
    int64_t columns;
    Share part, outer;
    const char* x;
    char* out;
  };

  /// `from`: the flat index over the dims so far; `to`: the same over the kept ones.
  void descend(const Walk& walk, size_t dim, int64_t from, int64_t to) const {
    if (dim + 1 == walk.last) {
      if (to < walk.outer.first || to >= walk.outer.last) return;
      int64_t rows = walk.sizes[dim];
      const char* x = walk.x + (from * rows * walk.columns + walk.part.first) * element_size_;
      char* out = walk.out + (to * walk.columns + walk.part.first) * element_size_;
      kernel()(x, rows, walk.columns, out, walk.part.last - walk.part.first);
      return;
    }
    for (int64_t i = 0; i < walk.sizes[dim]; ++i)
      descend(walk, dim + 1, from * walk.sizes[dim] + i, dims_[dim].folded ? to : to * walk.sizes[dim] + i);
  }

  runtime::FoldKernel kernel() const {
    const runtime::FoldKernels& kernels = runtime::fold_kernels(runtime::active_isa());
    return (is_sum_ ? kernels.sum : kernels.max)[place_];
  }

  template <typename T>
  void fill(char* out, int64_t count, T value) const {
    std::fill_n(reinterpret_cast<T*>(out), count, value);
  }

  void fill(char* out, int64_t count) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    switch (place_) {
      case 0:
        return fill(out, count, is_sum_ ? 0.0f : static_cast<float>(-kInfinity));
      case 1:
        return fill(out, count, is_sum_ ? 0.0 : -kInfinity);
      case 2:
        return fill(out, count, is_sum_ ? 0 : std::numeric_limits<int32_t>::lowest());
      default:
        return fill(out, count, is_sum_ ? int64_t{0} : std::numeric_limits<int64_t>::lowest());
    }
  }

  std::vector<FoldDim> dims_;  ///< kinds alternate; at least one is folded
  size_t place_;               ///< of the dtype in runtime::FoldKernels
  bool is_sum_;
  int64_t element_size_;
};

std::optional<size_t> place_of(DType dtype) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64};
  auto found = std::ranges::find(kTypes, dtype);
  if (found == std::end(kTypes)) return std::nullopt;
  return static_cast<size_t>(found - std::begin(kTypes));
}

CallFunction make_reduction(const codegen::Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.operands[0]);
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  auto place = place_of(type.dtype);
  if (!place || dims.empty()) return {};
  std::vector<FoldDim> groups;
  Dim group(1);
  for (size_t i = 0; i < type.shape.size(); ++i) {
    auto folded = [&](size_t d) { return std::ranges::find(dims, static_cast<int64_t>(d)) != dims.end(); };
    group = group * type.shape[i];
    if (i + 1 < type.shape.size() && folded(i) == folded(i + 1)) continue;
    groups.push_back({schedule.expression(group), folded(i)});
    group = Dim(1);
  }
  Reduction reduction(std::move(groups), *place, op.code == OpCode::kReduceSum, size_of(type.dtype));
  int64_t from = schedule.buffer.at(op.operands[0]), to = schedule.buffer.at(op.results[0]);
  return [=](const CallContext& context, std::string&) {
    reduction.run(context, at(context, from, 0), at(context, to, 0));
    return true;
  };
}

// ---- indices, sizes

template <typename F>
CallFunction with_number_type(DType dtype, F make) {
  switch (dtype) {
    case DType::kF32:
      return make(float{});
    case DType::kF64:
      return make(double{});
    case DType::kI32:
      return make(int32_t{});
    case DType::kI64:
      return make(int64_t{});
    default:
      return {};
  }
}

CallFunction make_iota(const codegen::Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.results[0]);
  auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
  DimExpr all = schedule.expression(element_count(type.shape)), size = schedule.expression(type.shape[dim]);
  DimExpr inner = schedule.expression(count_of(type.shape, dim + 1, type.shape.size()));
  int64_t to = schedule.buffer.at(op.results[0]);
  return with_number_type(type.dtype, [&]<typename T>(T) -> CallFunction {
    return [=](const CallContext& context, std::string&) {
      int64_t step = inner.evaluate(context.symbols), length = size.evaluate(context.symbols);
      Share share = share_of(all.evaluate(context.symbols), 64, context.thread, context.threads);
      T* out = reinterpret_cast<T*>(at(context, to, 0));
      for (int64_t i = share.first; i < share.last; ++i) out[i] = static_cast<T>(i / step % length);
      return true;
    };
  });
}

CallFunction make_size(const codegen::Schedule& schedule, const Op& op) {
  DimExpr size = schedule.expression(op.attr<Dim>("of"));
  int64_t to = schedule.buffer.at(op.results[0]);
  return with_number_type(schedule.program->type(op.results[0]).dtype, [&]<typename T>(T) -> CallFunction {
    return [=](const CallContext& context, std::string&) {
      if (context.thread == 0)
        *reinterpret_cast<T*>(at(context, to, 0)) = static_cast<T>(size.evaluate(context.symbols));
      return true;
    };
  });
}

// ---- integer division

/// a / b or, with `rest`, a % b. For b = -1, where the processor would trap on the least number, they are -a and 0.
template <typename T>
T quotient(T a, T b, bool rest) {
  if (b == -1) return rest ? T{0} : static_cast<T>(uint64_t{0} - static_cast<uint64_t>(a));
  return rest ? a % b : a / b;
}

CallFunction make_division(const codegen::Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.results[0]);
  if (type.dtype != DType::kI32 && type.dtype != DType::kI64) return {};
  DimExpr count = schedule.expression(element_count(type.shape));
  int64_t a = schedule.buffer.at(op.operands[0]), b = schedule.buffer.at(op.operands[1]);
  int64_t to = schedule.buffer.at(op.results[0]);
  bool rest = op.code == OpCode::kRem;
  std::string failure = fmt::format("{}: integer division by zero", info(op.code).name);
  return with_number_type(type.dtype, [&]<typename T>(T) -> CallFunction {
    if constexpr (std::is_integral_v<T>)
      return [=](const CallContext& context, std::string& error) {
        Share share = share_of(count.evaluate(context.symbols), 64, context.thread, context.threads);
        const T* left = reinterpret_cast<const T*>(at(context, a, 0));
        const T* right = reinterpret_cast<const T*>(at(context, b, 0));
        T* out = reinterpret_cast<T*>(at(context, to, 0));
        for (int64_t i = share.first; i < share.last; ++i) {
          if (right[i] == 0) {
            error = failure;
            return false;
          }
          out[i] = quotient(left[i], right[i], rest);
        }
        return true;
      };
    return {};
  });
}

}  // namespace

CallFunction make_dense(const codegen::Schedule& schedule, const Op& op) {
  for (ValueId operand : op.operands)
    if (!schedule.buffer.contains(operand)) return {};
  switch (op.code) {
    case OpCode::kMatmul:
    case OpCode::kBatchMatmul:
      return make_products(schedule, op);
    case OpCode::kReduceSum:
    case OpCode::kReduceMax:
      return make_reduction(schedule, op);
    case OpCode::kIota:
      return make_iota(schedule, op);
    case OpCode::kSize:
      return make_size(schedule, op);
    case OpCode::kDiv:
    case OpCode::kRem:
      return make_division(schedule, op);
    default:
      return {};
  }
}

}  // namespace weft::engine
