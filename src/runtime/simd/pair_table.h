#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/half_sum.h"
#include "runtime/simd/outer_pairs.h"
#include "runtime/simd/pairs.h"

namespace weft::runtime {
namespace {

/// Sets what is for a bf16 left operand alone. `Halves`: its kernels.
template <typename Halves>
constexpr PairKernels with_halves(PairKernels table) {
  using H = Halves;
  using Scratch = OuterPairsScratch<H::kOuterPart, H::kOuterPanels * kHalfPanelWidth>;
  const PanelsKernel panels[] = {nullptr, without_ahead<H::template kPanels<1>, 1>,
                                 without_ahead<H::template kPanels<2>, 2>, without_ahead<H::template kPanels<3>, 3>,
                                 without_ahead<H::template kPanels<4>, 4>};
  const ProductKernel products[] = {nullptr, kHalfProduct<H, 1>, kHalfProduct<H, 2>, kHalfProduct<H, 3>,
                                    kHalfProduct<H, 4>};
  for (int units = 1; units <= target::kMaxPanelUnits; ++units) {
    table.bf16[units] = panels[units];
    table.product_bf16[units] = products[units];
  }
  table.bf16_rows = H::rows_at_once;
  table.outer = outer_pairs<H::template kPanels<kHalfUnits>, Scratch>;
  table.outer_block_m = H::kRows > 1 ? H::kRows : block_shape(kHalfUnits).rows;
  table.outer_block_n = kHalfPanelWidth;
  table.outer_scratch_bytes = sizeof(Scratch);
  table.release = H::kRelease;
  return table;
}

constexpr PairKernels pair_table() {
  PairKernels table{};
  const PanelsKernel panels[] = {nullptr, without_ahead<kFloatPanels<1>, 1>, without_ahead<kFloatPanels<2>, 2>,
                                 without_ahead<kFloatPanels<3>, 3>, without_ahead<kFloatPanels<4>, 4>};
  const ProductKernel products[] = {nullptr, kFloatProduct<1>, kFloatProduct<2>, kFloatProduct<3>, kFloatProduct<4>};
  for (int units = 1; units <= target::kMaxPanelUnits; ++units) {
    table.f32[units] = panels[units];
    table.product_f32[units] = products[units];
  }
  table.pack = pack_pairs;
  table.on_the_way = pairs_on_the_way;
  table.column_sum = half_column_sum;
  return with_halves<VectorHalves>(table);
}

/// Calls a kernel of another source's table.
template <auto kKernel, typename Result, typename... Args>
Result call(Args... args) {
  return kKernel()(args...);
}

/// A table for processors that have instructions for products of bf16 by bf16. All else is that of `kOthers`, so that
/// it isn't compiled again.
template <typename Halves, const PairKernels& kOthers>
constexpr PairKernels half_table() {
  PairKernels table{};
  table.f32[1] = call<[] { return kOthers.f32[1]; }>;
  table.f32[2] = call<[] { return kOthers.f32[2]; }>;
  table.f32[3] = call<[] { return kOthers.f32[3]; }>;
  table.f32[4] = call<[] { return kOthers.f32[4]; }>;
  table.product_f32[1] = call<[] { return kOthers.product_f32[1]; }>;
  table.product_f32[2] = call<[] { return kOthers.product_f32[2]; }>;
  table.product_f32[3] = call<[] { return kOthers.product_f32[3]; }>;
  table.product_f32[4] = call<[] { return kOthers.product_f32[4]; }>;
  table.pack = call<[] { return kOthers.pack; }>;
  table.on_the_way = call<[] { return kOthers.on_the_way; }>;
  table.column_sum = call<[] { return kOthers.column_sum; }>;
  return with_halves<Halves>(table);
}

}  // namespace
}  // namespace weft::runtime
