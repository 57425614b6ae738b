// Packing, products and sums of rows.

#include <algorithm>

#include "runtime/calls/calls.h"
#include "runtime/kernels/kernels.h"
#include "runtime/memory/thread_scratch.h"

namespace weft::runtime {
namespace {

const DTypeKernels& kernels_of(DType dtype) { return kernels(active_isa(), dtype); }

void* first_of(const MatrixPlace& matrix, int64_t element_size, const CallContext& context) {
  return context.at(matrix.buffer, matrix.skip * element_size);
}

PackKernel pack_kernel(const PackCall& call) {
  if (call.pairs) return pair_kernels(active_isa()).pack;
  const bool is_widened = call.dtype == DType::kF16 || call.dtype == DType::kI8;
  return is_widened ? widened_kernels(active_isa(), call.dtype).pack : kernels_of(call.dtype).pack;
}

/// One member's share of the product of two matrices, into c. `Kernels`: DTypeKernels, PairKernels or F16OuterKernels.
template <typename Kernels>
void run_outer(const OuterArgs& args, const Kernels& kernels, const CallContext& context) {
  const bool by_m = args.m / kernels.outer_block_m >= args.n / kernels.outer_block_n;
  Share m{0, args.m}, n{0, args.n};
  if (by_m)
    m = context.share(args.m, kernels.outer_block_m);
  else
    n = context.share(args.n, kernels.outer_block_n);
  if (m.first < m.last && n.first < n.last)
    kernels.outer(args, m.first, m.last, n.first, n.last, thread_scratch(kernels.outer_scratch_bytes));
}

/// A member's parts of `batches` products of m rows and n columns: whole products where there are enough, else parts of
/// every one.
struct ProductShares {
  Share batches, rows, columns;

  ProductShares(int64_t batch_count, int64_t m, int64_t n, int64_t column_block, const CallContext& context)
      : batches{0, batch_count}, rows{0, m}, columns{0, n} {
    constexpr int64_t kRowBlock = 8, kEnoughRows = 64;
    if (context.threads == 1) return;
    if (batch_count % context.threads == 0 || batch_count >= 4 * context.threads)
      batches = context.share(batch_count);
    else if (m >= kEnoughRows * context.threads)
      rows = context.share(m, kRowBlock);
    else
      columns = context.share(n, column_block);
  }
  bool empty() const {
    return batches.first >= batches.last || rows.first >= rows.last || columns.first >= columns.last;
  }
};

}  // namespace

bool run(const PackCall& call, const CallContext& context, std::string&) {
  const PackArgs args{.source = context.at(call.source, call.skip * size_of(call.dtype)),
                      .destination = context.at(call.destination),
                      .k = call.k,
                      .n = call.n,
                      .groups = call.groups,
                      .unroll = call.unroll,
                      .ld = call.ld,
                      .transposed = call.transposed};
  const Share share = context.share(call.panels);
  if (share.first < share.last) pack_kernel(call)(args, share.first, share.last);
  return true;
}

bool run(const OuterCall& call, const CallContext& context, std::string&) {
  const int64_t result_size = size_of(call.dtype), size = call.dtype == DType::kF16 ? 4 : result_size;
  int64_t stride = 0;
  for (const MatrixPlace& right : call.right) stride += right.columns;
  char* row = context.at(call.result);
  for (const MatrixPlace& a : call.left) {
    char* c = row;
    for (const MatrixPlace& b : call.right) {
      const OuterArgs args{first_of(a, size, context),
                           first_of(b, size, context),
                           c,
                           a.rows.evaluate(context.symbols),
                           a.columns,
                           b.columns,
                           a.stride,
                           b.stride,
                           stride};
      if (call.dtype == DType::kBF16)
        run_outer(args, pair_kernels(active_isa()), context);
      else if (call.dtype == DType::kF16)
        run_outer(args, f16_outer_kernels(active_isa()), context);
      else
        run_outer(args, kernels_of(call.dtype), context);
      c += b.columns * result_size;
    }
    row += a.columns * stride * result_size;
  }
  return true;
}

bool run(const ColumnSumCall& call, const CallContext& context, std::string&) {
  const int64_t size = size_of(call.dtype);
  const ColumnSumKernel kernel =
      call.dtype == DType::kBF16 ? pair_kernels(active_isa()).column_sum : kernels_of(call.dtype).column_sum;
  char* out = context.at(call.result);
  for (const MatrixPlace& a : call.operand) {
    const Share share = context.share(a.columns, 64 / size);
    if (share.first < share.last)
      kernel(first_of(a, size, context), a.rows.evaluate(context.symbols), a.stride, out, share.first, share.last);
    out += a.columns * size;
  }
  return true;
}

bool run(const ProductCall& call, const CallContext& context, std::string&) {
  const int64_t m = call.m.evaluate(context.symbols), n = call.n.evaluate(context.symbols);
  const int64_t k = call.k.evaluate(context.symbols), batches = call.batches.evaluate(context.symbols);
  const int64_t size = size_of(call.dtype);
  const DTypeKernels& kernels = kernels_of(call.dtype);
  const ProductShares shares(batches, m, n, kernels.gemm_block_n, context);
  if (shares.empty()) return true;
  void* scratch = thread_scratch(std::max<int64_t>(1, k) * kernels.gemm_block_n * size);
  GemmArgs args{nullptr,
                nullptr,
                nullptr,
                m,
                n,
                k,
                call.transpose_left ? m : k,
                call.transpose_right ? k : n,
                n,
                call.transpose_left,
                call.transpose_right};
  for (int64_t i = shares.batches.first; i < shares.batches.last; ++i) {
    args.a = context.at(call.left, i * m * k * size);
    args.b = context.at(call.right, i * k * n * size);
    args.c = context.at(call.result, i * m * n * size);
    kernels.gemm(args, shares.rows.first, shares.rows.last, shares.columns.first, shares.columns.last, scratch);
  }
  return true;
}

}  // namespace weft::runtime
