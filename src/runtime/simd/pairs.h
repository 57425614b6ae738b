#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/pack.h"
#include "runtime/simd/tile.h"
#include "runtime/simd/unpacked.h"

namespace weft::runtime {
namespace {

// Products on bf16 weights laid out in pairs of steps (kernels.h): a register of a panel holds two steps of its
// columns, the first in the low halves. Sums are f32.

using PairVector __attribute__((vector_size(kVectorBytes))) = uint32_t;
using UnalignedPairs __attribute__((vector_size(kVectorBytes), aligned(4), may_alias)) = uint32_t;

/// An f32 left operand. The two steps of a pair are done one after the other, each with its half of the panel's
/// register: a bf16 is the high half of an f32. (Both at once would leave too few registers for the sums.)
struct FloatLeft {
  using Left = float;
  using X = Vector<float>;
  using Y = Vector<float>;
  static constexpr int kParts = 2;

  template <int Part>
  [[gnu::always_inline]] static X left(const float* a) {
    return splat(a[Part]);
  }
  template <int Part>
  [[gnu::always_inline]] static Y right(PairVector pairs) {
    return reinterpret_cast<Y>(Part == 0 ? pairs << 16 : pairs & 0xffff0000u);
  }
  [[gnu::always_inline]] static void add(Vector<float>& sum, X x, Y y) { sum += x * y; }
  using Last = FloatLeft;  ///< for the last of an odd number of steps, of which only the first part is done
};

#if defined(__AVX512BF16__)
/// A bf16 left operand. Its pairs are in memory as the instruction reads them.
struct HalfLeft {
  using Left = uint16_t;
  using X = PairVector;
  using Y = PairVector;
  static constexpr int kParts = 1;

  template <int Part>
  [[gnu::always_inline]] static X left(const uint16_t* a) {
    uint32_t pair;
    __builtin_memcpy(&pair, a, sizeof(pair));
    return pair - PairVector{};
  }
  template <int Part>
  [[gnu::always_inline]] static Y right(PairVector pairs) {
    return pairs;
  }
  [[gnu::always_inline]] static void add(Vector<float>& sum, X x, Y y) {
    sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
  }
  struct Last;
};

/// A single last step. The second of its pair may be beyond the operand's memory and is not read.
struct HalfLeft::Last : HalfLeft {
  template <int Part>
  [[gnu::always_inline]] static X left(const uint16_t* a) {
    return uint32_t{*a} - PairVector{};
  }
};
#endif

/// sum[r][s] += one part of a pair of steps.
template <typename Kind, int Part, int S, int R>
[[gnu::always_inline]] inline void add_part(Vector<float> (&sum)[R][S], const typename Kind::Left* a, int64_t lda,
                                            const uint32_t* b) {
  typename Kind::Y strip[S];
#pragma GCC unroll 8
  for (int s = 0; s < S; ++s) {
    strip[s] = Kind::template right<Part>(*reinterpret_cast<const UnalignedPairs*>(b + s * Simd<float>::kLanes));
    if constexpr (R > 1) keep_in_register(strip[s]);
  }
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r) {
    const typename Kind::X x = Kind::template left<Part>(a + r * lda);
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) Kind::add(sum[r][s], x, strip[s]);
  }
}

/// block() of tile.h for pairs; b_step in pairs, k in steps.
template <typename Kind, int S, int R, typename Ahead>
[[gnu::noinline]] void pairs_block(int64_t k, const typename Kind::Left* a, int64_t lda, const uint32_t* b,
                                   int64_t b_step, float* c, int64_t ldc, Onto onto, Ahead& ahead) {
  constexpr int kLanes = Simd<float>::kLanes;
  Vector<float> sum[R][S];
  start_sums<float, S, R>(onto, c, ldc, sum);
  Ahead asks = ahead;  // a copy, which stays in registers
  for (int64_t i = 0; i + 2 <= k; i += 2, a += 2, b += b_step) {
    add_part<Kind, 0, S, R>(sum, a, lda, b);
    if constexpr (Kind::kParts == 2) add_part<Kind, 1, S, R>(sum, a, lda, b);
    asks.advance();
  }
  ahead = asks;
  if (k % 2 != 0) add_part<typename Kind::Last, 0, S, R>(sum, a, lda, b);
  asm("" : "+r"(c), "+r"(ldc));
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      float* to = c + r * ldc + s * kLanes;
      store(to, onto == Onto::kSum ? sum[r][s] + load(to) : sum[r][s]);
    }
}

template <typename Kind, int S, int R, typename Ahead>
[[gnu::always_inline]] inline void pairs_of_rows(int64_t rows, int64_t k, const typename Kind::Left* a, int64_t lda,
                                                 const uint32_t* b, int64_t b_step, float* c, int64_t ldc, Onto onto,
                                                 Ahead& ahead) {
  if (rows == R) {
    pairs_block<Kind, S, R>(k, a, lda, b, b_step, c, ldc, onto, ahead);
  } else if constexpr (R > 1) {
    pairs_of_rows<Kind, S, R - 1>(rows, k, a, lda, b, b_step, c, ldc, onto, ahead);
  }
}

/// Like PanelsArgs of tile.h. Panels are `panel_size` pairs apart; k may be less than the number of steps in them.
template <typename Kind>
struct PairsArgs {
  int64_t rows, k;
  const typename Kind::Left* a;
  int64_t lda;
  const uint32_t* panels;
  int64_t panel_size, units;
  float* c;
  int64_t ldc, c_step;
  bool accumulate;
  const void* ahead = nullptr;  ///< as of a ProductKernel
  int64_t lines = 0;
};

/// few_rows_block() of tile.h for pairs: R rows, P panels at once.
template <typename Kind, int S, int P, int R>
[[gnu::noinline]] void few_pairs_block(const PairsArgs<Kind>& args, const uint32_t* b, int64_t b_step, float* c) {
  constexpr int kLanes = Simd<float>::kLanes;
  Vector<float> sum[P][R][S];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
      for (int s = 0; s < S; ++s) sum[p][r][s] = Vector<float>{};
  const typename Kind::Left* a = args.a;
  const int64_t panel_size = args.panel_size, lda = args.lda;
  for (int64_t i = 0; i + 2 <= args.k; i += 2, a += 2, b += b_step) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      add_part<Kind, 0, S, R>(sum[p], a, lda, b + p * panel_size);
      if constexpr (Kind::kParts == 2) add_part<Kind, 1, S, R>(sum[p], a, lda, b + p * panel_size);
    }
  }
  if (args.k % 2 != 0) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) add_part<typename Kind::Last, 0, S, R>(sum[p], a, lda, b + p * panel_size);
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
      for (int s = 0; s < S; ++s) {
        float* to = c + p * args.c_step + r * args.ldc + s * kLanes;
        store(to, args.accumulate ? sum[p][r][s] + load(to) : sum[p][r][s]);
      }
}

template <typename Kind, int Units, int R, int P>
void few_pairs(const PairsArgs<Kind>& args, int64_t first) {
  constexpr FewRowsShape kShape = few_rows_shape(Units, R);
  constexpr int64_t kWidth = Units * Simd<float>::kUnitLanes;
  constexpr int64_t kStripWidth = kShape.strip * Simd<float>::kLanes;
  const int64_t count = ceil_div(args.units, Units);
  for (; first + P <= count; first += P)
    for (int64_t strip = 0; strip < kWidth; strip += kStripWidth)
      few_pairs_block<Kind, kShape.strip, P, R>(args, args.panels + first * args.panel_size + strip, kWidth,
                                                args.c + first * args.c_step + strip);
  if constexpr (P > 1)
    if (first < count) few_pairs<Kind, Units, R, P / 2>(args, first);
}

/// block_shape() of tile.h, smaller by a register, which holds the mask of the halves.
constexpr BlockShape pairs_shape(int units) { return kVectorBytes == 32 ? BlockShape{2, 6} : block_shape(units); }

/// part_of_panel() of tile.h for pairs; k0 is even.
template <typename Kind, int Units, BlockShape kShape, typename Ahead>
[[gnu::always_inline]] inline void part_of_pairs(const PairsArgs<Kind>& args, int64_t p, int64_t k0, int64_t steps,
                                                 Onto onto, int64_t blocks, Ahead& ahead) {
  constexpr int64_t kWidth = Units * Simd<float>::kUnitLanes;
  const uint32_t* part = args.panels + p * args.panel_size + k0 / 2 * kWidth;
  for_strips<float, Units, kShape.strip>(args.units - p * Units, [&]<int Strip>(int64_t column) {
    const typename Kind::Left* a = args.a + k0;
    float* c = args.c + p * args.c_step + column;
    for (int64_t left = args.rows, block = blocks; block > 0; --block) {
      const int64_t count = ceil_div(left, block);
      pairs_of_rows<Kind, Strip, kShape.rows>(count, steps, a, args.lda, part + column, kWidth, c, args.ldc, onto,
                                              ahead);
      a += count * args.lda;
      c += count * args.ldc;
      left -= count;
    }
  });
}

template <typename Kind, int Units, BlockShape kShape, typename Ahead>
void many_pairs(const PairsArgs<Kind>& args, int64_t blocks, Ahead& ahead) {
  for_parts(args, ceil_div(args.units, Units), blocks, 2 * kPartSteps,
            [&](int64_t p, int64_t k0, int64_t steps, Onto onto) {
              part_of_pairs<Kind, Units, kShape>(args, p, k0, steps, onto, blocks, ahead);
            });
}

template <typename Kind, int Units, BlockShape kShape = pairs_shape(Units)>
void many_pairs(const PairsArgs<Kind>& args) {
  const int64_t blocks = ceil_div(args.rows, kShape.rows);
  const int64_t calls = ceil_div(args.units, Units) * (Units * kRegistersPerUnit / kShape.strip) * blocks;
  with_run_ahead(args.ahead, args.lines, calls * (args.k / 2),
                 [&](auto& ahead) { many_pairs<Kind, Units, kShape>(args, blocks, ahead); });
}

template <typename Kind, int Units>
void pairs_panels(const PairsArgs<Kind>& args) {
  if constexpr (is_for_eight_rows(Units, kEightRows.rows))
    if (is_for_eight_rows(Units, args.rows)) return many_pairs<Kind, Units, kEightRows>(args);
  if (args.rows > kFewRows) many_pairs<Kind, Units>(args);
  if (args.rows == 1) few_pairs<Kind, Units, 1, few_rows_shape(Units, 1).panels>(args, 0);
  if (args.rows == 2) few_pairs<Kind, Units, 2, few_rows_shape(Units, 2).panels>(args, 0);
  if (args.rows == 3) few_pairs<Kind, Units, 3, few_rows_shape(Units, 3).panels>(args, 0);
}

/// The PanelsKernel of a number of units (PanelsArgs::units). It prefetches memory as a ProductKernel does.
using AheadKernel = void (*)(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panels, int64_t units,
                             void* c, int64_t ldc, int64_t c_step, int64_t accumulate, const void* ahead,
                             int64_t lines);

template <AheadKernel kPanels, int Units>
void without_ahead(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panels, int64_t count, void* c,
                   int64_t ldc, int64_t c_step, int64_t accumulate) {
  kPanels(rows, k, a, lda, panels, count * Units, c, ldc, c_step, accumulate, nullptr, 0);
}

template <typename Kind, int Units>
void tile_pairs(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panels, int64_t units, void* c,
                int64_t ldc, int64_t c_step, int64_t accumulate, const void* ahead, int64_t lines) {
  stand_in(k, a, lda, panels, c, ldc);
  pairs_panels<Kind, Units>({rows, k, static_cast<const typename Kind::Left*>(a), lda,
                             static_cast<const uint32_t*>(panels), ceil_div(k, 2) * Units * Simd<float>::kUnitLanes,
                             units, static_cast<float*>(c), ldc, c_step, accumulate != 0, ahead, lines});
}

/// A bf16 left operand on a CPU without the instruction for it: converted to f32, some rows and steps at a time.
/// Ignores `ahead`.
template <int Units>
[[gnu::noinline]] void tile_widened(int64_t rows, int64_t k, const void* a_data, int64_t lda, const void* panels,
                                    int64_t units, void* c, int64_t ldc, int64_t c_step, int64_t accumulate,
                                    const void* /*ahead*/, int64_t /*lines*/) {
  constexpr int64_t kRows = 32, kSteps = 128, kWidth = Units * Simd<float>::kUnitLanes;
  alignas(64) float wide[kRows * kSteps];
  stand_in(k, a_data, lda, panels, c, ldc);
  const auto* a = static_cast<const uint16_t*>(a_data);
  for (int64_t r0 = 0; r0 < rows; r0 += kRows) {
    const int64_t block = smaller(kRows, rows - r0);
    // Runs once even if there are no steps, to write zeros.
    for (int64_t k0 = 0; k0 < k || k0 == 0; k0 += kSteps) {
      const int64_t steps = smaller(kSteps, k - k0);
      for (int64_t r = 0; r < block; ++r) {
        const uint16_t* from = a + (r0 + r) * lda + k0;
        auto* to = reinterpret_cast<uint32_t*>(wide + r * kSteps);
        for (int64_t i = 0; i < steps; ++i) to[i] = uint32_t{from[i]} << 16;
      }
      pairs_panels<FloatLeft, Units>(
          {block, steps, wide, kSteps, static_cast<const uint32_t*>(panels) + k0 / 2 * kWidth, ceil_div(k, 2) * kWidth,
           units, static_cast<float*>(c) + r0 * ldc, ldc, c_step, accumulate != 0 || k0 > 0});
    }
  }
}

/// Pairs of the lanes of two rows.
[[gnu::always_inline]] inline Vector<float> pairs_of(const uint16_t* first, const uint16_t* second) {
  using Halves __attribute__((vector_size(kVectorBytes / 2))) = uint16_t;
  Halves low, high;
  __builtin_memcpy(&low, first, sizeof(low));
  __builtin_memcpy(&high, second, sizeof(high));
  return reinterpret_cast<Vector<float>>(__builtin_convertvector(low, PairVector) |
                                         __builtin_convertvector(high, PairVector) << 16);
}

/// Interleaves rows 2i and 2i + 1 of source [k][ld].
inline void interleave_rows(const uint16_t* source, int64_t ld, int64_t count, int64_t k, uint32_t* destination,
                            int64_t destination_step) {
  constexpr int64_t kUnit = Simd<float>::kUnitLanes, kRowsAhead = 32;
  int64_t i = 0;
  if (count == kUnit) {
    for (; i + 2 <= k; i += 2) {
      const uint16_t* first = source + i * ld;
      auto* to = reinterpret_cast<float*>(destination + i / 2 * destination_step);
#pragma GCC unroll 4
      for (int64_t j = 0; j < kUnit; j += Simd<float>::kLanes) store(to + j, pairs_of(first + j, first + ld + j));
      prefetch_bytes(first, kRowsAhead * ld * 2);
      prefetch_bytes(first + ld, kRowsAhead * ld * 2);
    }
  }
  for (; i < k; i += 2) {
    const uint16_t* first = source + i * ld;
    uint32_t* to = destination + i / 2 * destination_step;
    for (int64_t j = 0; j < kUnit; ++j)
      to[j] = j < count ? uint32_t{first[j]} | (i + 1 < k ? uint32_t{first[ld + j]} << 16 : 0) : 0;
  }
}

/// A register of pairs from memory that need not be aligned.
[[gnu::always_inline]] inline Vector<float> load_pairs(const uint16_t* p) {
  Vector<float> pairs;
  __builtin_memcpy(&pairs, p, sizeof(pairs));
  return pairs;
}

/// The same for a transposed source [count][ld].
inline void gather_pairs(const uint16_t* source, int64_t ld, int64_t count, int64_t k, uint32_t* destination,
                         int64_t destination_step) {
  constexpr int kLanes = Simd<float>::kLanes;
  int64_t whole = 0;  // steps that squares of pairs hold
  if (count == Simd<float>::kUnitLanes) {
    for (; whole + 2 * kLanes <= k; whole += 2 * kLanes)
      for (int64_t j = 0; j < count; j += kLanes) {
        Vector<float> square[kLanes];
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r) {
          square[r] = load_pairs(source + (j + r) * ld + whole);
          prefetch_bytes(source + (j + r) * ld + whole, kBytesAhead);
        }
        transpose_square<float>(square);
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r)
          store(reinterpret_cast<float*>(destination) + (whole / 2 + r) * destination_step + j, square[r]);
      }
  }
  for (int64_t i = whole; i < k; i += 2)
    for (int64_t j = 0; j < Simd<float>::kUnitLanes; ++j) {
      const uint16_t* from = source + j * ld + i;
      destination[i / 2 * destination_step + j] =
          j < count ? uint32_t{from[0]} | (i + 1 < k ? uint32_t{from[1]} << 16 : 0) : 0;
    }
}

/// The layout of the op `pack` with pairs.
inline void pack_pairs(const PackArgs& args, int64_t first_panel, int64_t last_panel) {
  if (args.transposed && args.k % 2 == 0 && args.ld % 2 == 0) {
    // The source holds pairs already, which are packed as elements of 4 bytes.
    PackArgs pairs = args;
    pairs.k /= 2;
    pairs.ld /= 2;
    return pack<float>(pairs, first_panel, last_panel);
  }
  constexpr int64_t kUnit = Simd<float>::kUnitLanes, kAcross = 32;
  const int64_t group_width = args.unroll * kUnit, width = args.groups * group_width;
  const int64_t along = args.transposed ? 2 * kPackedAlong : kAcross;
  const auto* source = static_cast<const uint16_t*>(args.source);
  for (int64_t k0 = 0; k0 < args.k; k0 += along)
    for (int64_t panel = first_panel; panel < last_panel; ++panel) {
      const int64_t steps = smaller(along, args.k - k0);
      uint32_t* rows = static_cast<uint32_t*>(args.destination) + (panel * ceil_div(args.k, 2) + k0 / 2) * width;
      for (int64_t column = 0; column < width; column += kUnit) {
        const int64_t unit = panel * group_width + column % group_width;  // within its group
        const int64_t n = column / group_width * args.n + unit;
        int64_t count = args.n - unit;
        count = count < 0 ? 0 : smaller(count, kUnit);
        const uint16_t* from = source + (count == 0 ? 0 : args.transposed ? n * args.ld + k0 : k0 * args.ld + n);
        if (args.transposed)
          gather_pairs(from, args.ld, count, steps, rows + column, width);
        else
          interleave_rows(from, args.ld, count, steps, rows + column, width);
      }
    }
}

inline const void* pairs_on_the_way(const void* entry, const void* weights, int64_t first, int64_t count,
                                    const ProductLayout* layout) {
  return panels_on_the_way<pack_pairs>(entry, weights, first, count, *layout, ceil_div(layout->k, 2) * target::kUnit);
}

/// Products without panels, as unpacked_product().
using UnpackedKernel = void (*)(int64_t rows, const void* a, int64_t lda, const void* weights, int64_t first,
                                int64_t count, void* c, const ProductLayout& layout, const void* ahead, int64_t lines);

/// An UnpackedKernel of bf16 by bf16: that of another source's table.
template <const PairKernels& kTable>
void unpacked_elsewhere(int64_t rows, const void* a, int64_t lda, const void* weights, int64_t first, int64_t count,
                        void* c, const ProductLayout& layout, const void* ahead, int64_t lines) {
  kTable.product_bf16[1](rows, a, lda, nullptr, weights, first, count, c, &layout, ahead, lines);
}

template <AheadKernel kPanels, UnpackedKernel kUnpacked, int Units>
void product_pairs(int64_t rows, const void* a, int64_t lda, const void* panels, const void* weights, int64_t first,
                   int64_t count, void* c, const ProductLayout* layout, const void* ahead, int64_t lines) {
  constexpr int64_t kWidth = Units * Simd<float>::kUnitLanes;
  if (panels)
    kPanels(rows, layout->k, a, lda, static_cast<const uint32_t*>(panels) + first * ceil_div(layout->k, 2) * kWidth,
            units_of_panels<float, Units>(*layout, first, count), c, kWidth, rows * kWidth, 0, ahead, lines);
  else
    kUnpacked(rows, a, lda, weights, first, count, c, *layout, ahead, lines);
}

/// The kernels for a bf16 left operand, on vectors.
struct VectorHalves {
  template <int Units>
  static constexpr AheadKernel kPanels = tile_widened<Units>;
  static constexpr UnpackedKernel kUnpacked = unpacked_product<HalfOperands>;
  static constexpr int64_t kRows = 1;
  static constexpr int64_t kOuterPart = 128, kOuterPanels = 4;  ///< of the op `outer` (outer_pairs.h)
  static int64_t rows_at_once(int64_t /*k*/) { return kRows; }
  static constexpr void (*kRelease)() = nullptr;
};

#if defined(__AVX512BF16__)
/// The same with the instruction for bf16. Products by columns are those of `kOthers`, which need no such instruction.
template <const PairKernels& kOthers>
struct InstructionHalves : VectorHalves {
  template <int Units>
  static constexpr AheadKernel kPanels = tile_pairs<HalfLeft, Units>;

  static void dots_or_columns(int64_t rows, const void* a, int64_t lda, const void* weights, int64_t first,
                              int64_t count, void* c, const ProductLayout& layout, const void* ahead, int64_t lines) {
    if (layout.transposed)
      product_of_dots(unpacked_args<HalfOperands>(rows, a, lda, weights, first, count, c, layout), ahead, lines);
    else
      unpacked_elsewhere<kOthers>(rows, a, lda, weights, first, count, c, layout, ahead, lines);
  }
  static constexpr UnpackedKernel kUnpacked = dots_or_columns;
};
#endif

template <int Units>
constexpr AheadKernel kFloatPanels = tile_pairs<FloatLeft, Units>;
template <typename Halves, int Units>
constexpr ProductKernel kHalfProduct = product_pairs<Halves::template kPanels<Units>, Halves::kUnpacked, Units>;
template <int Units>
constexpr ProductKernel kFloatProduct = product_pairs<kFloatPanels<Units>, unpacked_product<HalfWeights>, Units>;

}  // namespace
}  // namespace weft::runtime
