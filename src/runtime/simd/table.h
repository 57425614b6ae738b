#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/byte_rows.h"
#include "runtime/simd/column_sum.h"
#include "runtime/simd/fold.h"
#include "runtime/simd/gemm.h"
#include "runtime/simd/i8.h"
#include "runtime/simd/outer.h"
#include "runtime/simd/pack.h"
#include "runtime/simd/rounded_outer.h"
#include "runtime/simd/tile.h"
#include "runtime/simd/unpacked.h"

namespace weft::runtime {
namespace {

/// ProductKernel without panels.
template <typename T, typename Weights>
void product_of_rows(int64_t rows, const void* a, int64_t lda, const void* weights, int64_t first, int64_t count,
                     void* c, const ProductLayout& layout, const void* ahead, int64_t lines) {
  if constexpr (kIsByte<Weights>)
    if (layout.transposed)
      return byte_rows_of<T>(rows, {.k = layout.k,
                                    .a = a,
                                    .lda = lda,
                                    .weights = static_cast<const int8_t*>(weights),
                                    .ldw = layout.ld,
                                    .n = layout.n,
                                    .groups = layout.groups,
                                    .width = layout.unroll * Simd<T>::kUnitLanes,
                                    .panel = first,
                                    .count = count,
                                    .c = c,
                                    .c_step = rows * layout.groups * layout.unroll * Simd<T>::kUnitLanes});
  unpacked_product<PlainWeights<T, Weights>>(rows, a, lda, weights, first, count, c, layout, ahead, lines);
}

/// `Weights`: the type of unpacked weights.
template <typename T, int Units, typename Weights = T>
void product(int64_t rows, const void* a, int64_t lda, const void* panels, const void* weights, int64_t first,
             int64_t count, void* c, const ProductLayout* layout, const void* ahead, int64_t lines) {
  constexpr int64_t kWidth = Units * Simd<T>::kUnitLanes;
  if (panels)
    tile_units<T, Units>(rows, layout->k, a, lda, static_cast<const T*>(panels) + first * layout->k * kWidth,
                         units_of_panels<T, Units>(*layout, first, count), c, kWidth, rows * kWidth, false, ahead,
                         lines);
  else
    product_of_rows<T, Weights>(rows, a, lda, weights, first, count, c, *layout, ahead, lines);
}

template <typename T>
constexpr DTypeKernels kernel_table() {
  return {
      .tile = {nullptr, tile<T, 1>, tile<T, 2>, tile<T, 3>, tile<T, 4>},
      .tile_panels = {nullptr, tile_panels<T, 1>, tile_panels<T, 2>, tile_panels<T, 3>, tile_panels<T, 4>},
      .product = {nullptr, product<T, 1>, product<T, 2>, product<T, 3>, product<T, 4>},
      .tile_rows = {0, block_shape(1).rows, block_shape(2).rows, block_shape(3).rows, block_shape(4).rows},
      .pack = pack<T>,
      .on_the_way = on_the_way<T>,
      .outer = outer<T>,
      .column_sum = column_sum<T>,
      .gemm = gemm<T>,
      .outer_block_m = 2 * kOuterRows,
      .outer_block_n = OuterSizes<T>::kPanel,
      .gemm_block_n = kGemmUnits * Simd<T>::kUnitLanes,
      .outer_scratch_bytes = OuterSizes<T>::kScratchBytes,
  };
}

template <typename Weights>
constexpr WidenedKernels widened_table() {
  return {
      .product = {nullptr, product<float, 1, Weights>, product<float, 2, Weights>, product<float, 3, Weights>,
                  product<float, 4, Weights>},
      .pack = pack<float, Weights>,
      .on_the_way = on_the_way<float, Weights>,
  };
}

constexpr F16OuterKernels f16_outer_table() {
  return {
      .outer = rounded_outer,
      .outer_block_m = 2 * kOuterRows,
      .outer_block_n = OuterSizes<float>::kPanel,
      .outer_scratch_bytes = sizeof(RoundedOuterScratch),
  };
}

}  // namespace
}  // namespace weft::runtime
