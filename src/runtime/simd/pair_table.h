#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/half_sum.h"
#include "runtime/simd/outer_pairs.h"
#include "runtime/simd/pairs.h"

namespace weft::runtime {
namespace {

/// `Halves`: the kernels for a bf16 left operand.
template <typename Halves = VectorHalves>
constexpr PairKernels pair_table() {
  using H = Halves;
  using Scratch = OuterPairsScratch<H::kOuterPart, H::kOuterPanels * kHalfPanelWidth>;
  return {
      .f32 = {nullptr, without_ahead<kFloatPanels<1>, 1>, without_ahead<kFloatPanels<2>, 2>,
              without_ahead<kFloatPanels<3>, 3>, without_ahead<kFloatPanels<4>, 4>},
      .bf16 = {nullptr, without_ahead<H::template kPanels<1>, 1>, without_ahead<H::template kPanels<2>, 2>,
               without_ahead<H::template kPanels<3>, 3>, without_ahead<H::template kPanels<4>, 4>},
      .product_f32 = {nullptr, kFloatProduct<1>, kFloatProduct<2>, kFloatProduct<3>, kFloatProduct<4>},
      .product_bf16 = {nullptr, kHalfProduct<H, 1>, kHalfProduct<H, 2>, kHalfProduct<H, 3>, kHalfProduct<H, 4>},
      .bf16_rows = H::rows_at_once,
      .pack = pack_pairs,
      .on_the_way = pairs_on_the_way,
      .column_sum = half_column_sum,
      .outer = outer_pairs<H::template kPanels<kHalfUnits>, Scratch>,
      .outer_block_m = H::kRows > 1 ? H::kRows : block_shape(kHalfUnits).rows,
      .outer_block_n = kHalfPanelWidth,
      .outer_scratch_bytes = sizeof(Scratch),
      .release = H::kRelease,
  };
}

}  // namespace
}  // namespace weft::runtime
