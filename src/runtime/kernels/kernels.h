#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/target.h"

namespace weft::runtime {

/// Instruction sets that micro-kernels are compiled for ahead of time. Generated code targets the same set. kAmx is
/// AVX-512 with the tile unit, which multiplies bf16. kAmxEmulated, for tests, is the processor's best other set with a
/// tile unit in C++.
enum class Isa : uint8_t { kGeneric, kAvx2, kAvx512, kAmx, kAmxEmulated };

std::string_view name_of(Isa isa);

/// Whether this CPU and the operating system can run the set. For the tile unit, the first call asks Linux.
bool supports(Isa isa);

/// The set of the vectors: kGeneric, kAvx2 or kAvx512.
Isa vector_isa(Isa isa);

/// The best set of this CPU, or the one that WEFT_ISA names (user's error if the CPU lacks it or the name is unknown).
Isa active_isa();

/// Whether this CPU has AVX512-BF16: products of pairs, and a rounding that takes denormals for zeros.
bool has_bf16_instructions();

/// c[r][0..width) = (accumulate ? c : 0) + sum over k of a[r][k] * panel[k][0..width), width = vectors * lanes, for
/// r in 0..rows-1. `lda`, `ldc` in elements. Any rows >= 0 and k >= 0; panel is 64-byte aligned, a and c are not.
/// The order of summation over k is the same for every row count (so that the bits don't depend on the split).
using TileKernel = void (*)(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panel, void* c,
                            int64_t ldc, int64_t accumulate);

/// The same for `count` consecutive panels ([panels][k][width]); the columns of panel p are at c + p * c_step elements.
/// Gives the same bits as a call of TileKernel for each panel. Up to twice as fast for 1 to 3 rows, since the additions
/// of several panels overlap.
using PanelsKernel = void (*)(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panels, int64_t count,
                              void* c, int64_t ldc, int64_t c_step, int64_t accumulate);

/// Panel layout of the op `pack` (ir/ops.def) for panels first..last-1. `source` is b [K, G*N] row-major, or [G*N, K]
/// with `transposed`; ld its row stride in elements.
struct PackArgs {
  const void* source;
  void* destination;
  int64_t k, n, groups, unroll;  ///< n: columns of one group
  int64_t ld;
  bool transposed;
};
using PackKernel = void (*)(const PackArgs& args, int64_t first_panel, int64_t last_panel);

/// The weights of a product, as PackArgs says, and their panels. Machine code holds it as a constant, so all fields are
/// int64_t.
struct ProductLayout {
  int64_t k, n, groups, unroll;
  int64_t ld;          ///< of the weights that are not packed, as
  int64_t transposed;  ///< PackArgs::transposed
};

/// c = the product of `rows` rows of a and the panels first..first+count-1, as by PanelsKernel: panel p's tile, [rows]
/// [width], at c + (p - first) * rows * width. `panels` is the first of all panels, or null: then the weights are read
/// where they lie, at `weights`. That takes as long as packing them would for some rows (target::rows_worth_packing),
/// and gives other bits, which don't depend on `rows`, `first` and `count` either. Lanes beyond the last column are
/// undefined.
///
/// While it multiplies it prefetches `lines` cache lines from `ahead` on, or some of them. A later product reads these
/// lines, which come from a distant cache meanwhile. No memory has to be there. With few rows or without panels it
/// prefetches nothing.
using ProductKernel = void (*)(int64_t rows, const void* a, int64_t lda, const void* panels, const void* weights,
                               int64_t first, int64_t count, void* c, const ProductLayout* layout, const void* ahead,
                               int64_t lines);

/// The function that gives a ProductKernel its argument `panels` for the panels first..first+count-1, from the entry of
/// the pack's buffer (pack_entry.h). If the entry is the odd address of memory for `count` panels, packs the panels
/// there.
using PanelsOnTheWay = const void* (*)(const void* entry, const void* weights, int64_t first, int64_t count,
                                       const ProductLayout* layout);

/// c [M, N] = sum over rows r of a[r][m] * b[r][n] for the rectangle m0..m1-1, n0..n1-1: the op `outer` with leading
/// dims flattened. Sums over blocks of rows of a fixed size, then over the blocks in order, so the bits don't depend on
/// how c is cut into rectangles. Fastest if their bounds are multiples of outer_block_m and outer_block_n. `scratch`
/// has outer_scratch_bytes and is 64-byte aligned.
struct OuterArgs {
  const void* a;
  const void* b;
  void* c;
  int64_t rows, m, n, lda, ldb, ldc;
};
using OuterKernel = void (*)(const OuterArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void* scratch);

/// out[c] = sum over rows r of a[r][c] for c in c0..c1-1: over blocks of rows of a fixed size, then over the blocks in
/// order, so the bits don't depend on the range of columns.
using ColumnSumKernel = void (*)(const void* a, int64_t rows, int64_t lda, void* out, int64_t c0, int64_t c1);

/// c [m, n] = op(a) op(b) for the rectangle m0..m1-1, n0..n1-1, of matrices that are not packed: a [m, k] or, with
/// transpose_a, [k, m]; b [k, n] or, with transpose_b, [n, k]; row steps in elements. Sums run over k in order or, for
/// a transposed b and few rows, over the lanes of a vector. The bits don't depend on the rectangle's rows, nor on its
/// columns if n0 is a multiple of gemm_block_n. `scratch` has max(1, k) * gemm_block_n elements, 64-byte aligned.
struct GemmArgs {
  const void* a;
  const void* b;
  void* c;
  int64_t m, n, k, lda, ldb, ldc;
  bool transpose_a, transpose_b;
};
using GemmKernel = void (*)(const GemmArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void* scratch);

struct DTypeKernels {
  TileKernel tile[target::kMaxPanelUnits + 1];  ///< by vectors, 1..4; [0] is null
  PanelsKernel tile_panels[target::kMaxPanelUnits + 1];
  ProductKernel product[target::kMaxPanelUnits + 1];
  int64_t tile_rows[target::kMaxPanelUnits + 1];  ///< the rows of each kernel's tile: callers block their rows by it
  PackKernel pack;
  PanelsOnTheWay on_the_way;
  OuterKernel outer;
  ColumnSumKernel column_sum;
  GemmKernel gemm;
  int64_t outer_block_m, outer_block_n, gemm_block_n;
  int64_t outer_scratch_bytes;
};

/// The kernels of f32 or f64 (internal error for another type).
const DTypeKernels& kernels(Isa isa, DType dtype);

/// Kernels for weights that become f32 as they are packed. Their panels hold what f32 weights would give, bit for bit,
/// since every number of the type is an f32. So DTypeKernels has the products with panels, too. Products without panels
/// give the bits of f32 weights for f16, and the bits of ByteRowsKernel for transposed i8.
struct WidenedKernels {
  ProductKernel product[target::kMaxPanelUnits + 1];  ///< by vectors, of an f32 left operand
  PackKernel pack;
  PanelsOnTheWay on_the_way;
};

/// The kernels for weights of f16 or i8 (internal error for another type).
const WidenedKernels& widened_kernels(Isa isa, DType weights);

/// For gradients of f16 weights.
struct F16OuterKernels {
  OuterKernel outer;  ///< of f32 a and b; sums are those of DTypeKernels, rounded to the f16 of c at the end
  int64_t outer_block_m, outer_block_n, outer_scratch_bytes;
};
const F16OuterKernels& f16_outer_kernels(Isa isa);

/// Folds (sums, or takes the maximum of) out[c] and x[0][c], ..., x[rows-1][c] into out[c], for c in 0..columns-1; `ld`
/// elements between rows. One column with ld = 1 folds a row of `rows` elements. Works on blocks of a fixed size, so
/// the bits don't depend on how columns are split.
using FoldKernel = void (*)(const void* x, int64_t rows, int64_t ld, void* out, int64_t columns);

/// By dtype: f32, f64, i32, i64; integers wrap.
struct FoldKernels {
  FoldKernel sum[4], max[4];
};
const FoldKernels& fold_kernels(Isa isa);

/// Products on bf16 weights, with sums and results in f32. The panels hold pairs of rows of the weights, [panels][(k +
/// 1) / 2][width][2]; with an odd k the last row is paired with 0. By vectors, as above; a vector has 16
/// columns.
struct PairKernels {
  PanelsKernel f32[target::kMaxPanelUnits + 1];  ///< for an f32 left operand
  PanelsKernel bf16[target::kMaxPanelUnits +
                    1];  ///< for a bf16 one; may take denormals for zeros, as the CPU's bf16 instruction does
  ProductKernel product_f32[target::kMaxPanelUnits + 1], product_bf16[target::kMaxPanelUnits + 1];
  int64_t (*bf16_rows)(int64_t k);  ///< rows of a bf16 left operand to take at once; 1: as many as of f32
  PackKernel pack;                  ///< the panels, of bf16 weights
  PanelsOnTheWay on_the_way;
  ColumnSumKernel column_sum;  ///< of bf16 rows; sums are f32, and rounded at the end
  /// For bf16 a and b; sums are f32, and rounded to the bf16 of c at the end.
  OuterKernel outer;
  int64_t outer_block_m, outer_block_n, outer_scratch_bytes;
  /// Releases what the kernels keep in a thread between two calls; null if they keep nothing.
  void (*release)();
};
const PairKernels& pair_kernels(Isa isa);

/// Releases this thread's tiles, if a kernel in use sets tiles. Called at the end of a parallel region: then no context
/// switch saves and restores them while the thread waits or runs other code.
void release_tiles();

/// Products on 8-bit weights as they lie, [groups * n, k] row-major. Panel p of them is rows p * width .. p * width +
/// width - 1 of each group. For `count` panels from `panel` on, c[r][g * width + j] = sum over k of a[r][k] * weights[g
/// * n + p * width + j][k] for r in 0..rows-1; the columns of the next panel are at c + c_step elements. Columns of
/// rows beyond n are left as they are. c's rows are groups * width elements apart.
///
/// f32 is rounded to a fixed point of 24 bits below the largest of each 1024 elements (of 31 bits without AVX-512
/// VNNI); i32 is exact, modulo 2^32. The bits don't depend on how rows and panels are split.
using ByteRowsKernel = void (*)(int64_t rows, int64_t k, const void* a, int64_t lda, const void* weights, int64_t n,
                                int64_t groups, int64_t width, int64_t panel, int64_t count, void* c, int64_t c_step);
struct ByteRowsKernels {
  ByteRowsKernel f32, i32;  ///< by the type of a and c
};
const ByteRowsKernels& byte_rows_kernels(Isa isa);

/// How fast products with 8-bit weights are, compared with f32 products on panels in the same cache.
enum class ByteProducts : uint8_t {
  kFaster,       ///< the CPU multiplies bytes: AVX-512 VNNI
  kFewRowsOnly,  ///< faster where a row or a few wait for their weights, since there are fewer bytes; slower with many
  kSlower        ///< slower wherever floats come as fast: integers are multiplied half a vector at a time (Zen 1)
};
ByteProducts byte_products(Isa isa);

/// How many rows can be multiplied by weights in the time that the weights take to arrive from outside the core's own
/// cache: four bytes over a core's bandwidth from the shared cache, over the time of a multiply-add.
int64_t rows_while_streaming(Isa isa);

}  // namespace weft::runtime
