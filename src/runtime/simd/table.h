#pragma once

#include "runtime/kernels.h"
#include "runtime/simd/column_sum.h"
#include "runtime/simd/fold.h"
#include "runtime/simd/gemm.h"
#include "runtime/simd/outer.h"
#include "runtime/simd/pack.h"
#include "runtime/simd/rounded_outer.h"
#include "runtime/simd/tile.h"
#include "runtime/simd/unpacked.h"

namespace weft::runtime {
namespace {

/// `Weights`: of those that lie in no panels.
template <typename T, int Units, typename Weights = T>
void product(int64_t rows, const void* a, int64_t lda, const void* panels, const void* weights, int64_t first,
             int64_t count, void* c, const ProductLayout* layout, const void* ahead, int64_t lines) {
  constexpr int64_t kWidth = Units * Simd<T>::kUnitLanes;
  if (panels)
    tile_panels<T, Units>(rows, layout->k, a, lda, static_cast<const T*>(panels) + first * layout->k * kWidth, count, c,
                          kWidth, layout->c_step, false, ahead, lines);
  else
    unpacked_product<PlainWeights<T, Weights>>(rows, a, lda, weights, first, count, c, *layout);
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

constexpr F16Kernels f16_table() {
  return {
      .product = {nullptr, product<float, 1, F16>, product<float, 2, F16>, product<float, 3, F16>,
                  product<float, 4, F16>},
      .pack = pack<float, F16>,
      .on_the_way = on_the_way<float, F16>,
      .outer = rounded_outer,
      .outer_block_m = 2 * kOuterRows,
      .outer_block_n = OuterSizes<float>::kPanel,
      .outer_scratch_bytes = sizeof(RoundedOuterScratch),
  };
}

}  // namespace
}  // namespace weft::runtime
