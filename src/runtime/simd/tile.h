#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

/// The register block for panels of `units` 64-byte units: `strip` registers side by side, `rows` rows. strip x rows
/// accumulators, the strip of the panel and one broadcast fit the register file, with at least 8 accumulators so that
/// the latency of an FMA (4 cycles, two a cycle) is hidden. Not more than 8 rows: with a power of two as the left
/// operand's row step, more would not fit the ways of a first-level cache.
struct BlockShape {
  int strip, rows;
};

constexpr BlockShape block_shape(int units) {
  if (kVectorBytes == 64) {
    constexpr int kRows[] = {0, 8, 8, 8, 6};
    return {units, kRows[units]};
  }
  if (kVectorBytes == 32) return {2, 6};  // a strip is a cache line: 3 by 4 is 10 % slower for 3 units, 1024 steps
  return {2, 4};
}

/// Panels of 4 units by 7 or 8 rows: two strips, each by all rows. Two blocks of 4 rows read every line twice, and
/// while panels come from beyond L2 take as long as five rows each. (Zen 5, one thread, us a step of an LSTM of 531
/// units, whose weights come from L3: 6 rows 70, 8 rows 106 by two blocks, 12 rows 128.)
constexpr BlockShape kEightRows{2, 8};

constexpr bool is_for_eight_rows(int units, int64_t rows) {
  return kVectorBytes == 64 && units == 4 && rows > block_shape(4).rows && rows <= kEightRows.rows;
}

/// Where element (row r, step k) of the left operand lies: at a[r * row_step + k * k_step].
template <typename T>
struct LeftOperand {
  const T* data;
  int64_t row_step, k_step;
};

/// Prefetches the lines of c. They are far apart, and often only in the last-level cache or in none; a store waits for
/// its line too.
template <typename T, int S, int R>
[[gnu::always_inline]] inline void prefetch_rows(const T* c, int64_t ldc) {
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int s = 0; s < S * kVectorBytes; s += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(c + r * ldc) + s, 1, 3);
  if ((reinterpret_cast<uintptr_t>(c) | static_cast<uintptr_t>(ldc) * sizeof(T)) % target::kCacheLine == 0) return;
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r) __builtin_prefetch(c + r * ldc + S * Simd<T>::kLanes - 1, 1, 3);
}

// While it runs, a block prefetches memory that is needed soon: at each step of k it calls advance() of one of the
// structs below, which prefetches a line when its turn has come. (Each line is asked for once: asking again for a line
// still under way holds up the loads behind it. On Zen 1 a weight gradient of 3072 by 1024 whose operands came from
// memory had 26 GF/s that way, 35 now.) Addresses are numbers here, since they may leave the memory that they start in.

struct NothingAhead {
  void advance() {}
};

/// The clock of a prefetch of so many bytes a tick, at most a line a tick: says at which ticks the next line is due.
class LineClock {
 public:
  explicit LineClock(int64_t bytes_a_tick = 0) : step_(bytes_a_tick) {}

  [[gnu::always_inline]] bool tick() {
    due_ += step_;
    if (due_ < target::kCacheLine) return false;
    due_ -= target::kCacheLine;
    return true;
  }

 private:
  int64_t step_;
  int64_t due_ = 0;
};

/// Contiguous memory; each step prefetches up to `Lines` lines of it.
template <int Lines>
struct RunAhead {
  uintptr_t at;
  LineClock clock;

  [[gnu::always_inline]] void advance() {
#pragma GCC unroll 4
    for (int i = 0; i < Lines; ++i) {
      if (!clock.tick()) continue;
      __builtin_prefetch(reinterpret_cast<const void*>(at));
      at += target::kCacheLine;
    }
  }
};

/// Calls body(ahead), where `ahead` prefetches `lines` lines in `steps` steps, or fewer lines if there are too many.
/// The body takes a reference, and passes it on as a reference. A copy on the stack would be written by halves and read
/// at once: its load would wait until all stores before it have left the core. (Zen 5, one thread, LSTM B145 T32 H252
/// both ways, forward: a twelfth of the time.)
template <typename Body>
[[gnu::always_inline]] inline void with_run_ahead(const void* from, int64_t lines, int64_t steps, const Body& body) {
  if (lines == 0 || steps == 0) {
    NothingAhead nothing;
    return body(nothing);
  }
  const auto at = reinterpret_cast<uintptr_t>(from);
  const int64_t step = ceil_div(lines * target::kCacheLine, steps);
  if (step <= target::kCacheLine) {
    RunAhead<1> run{at, LineClock(step)};
    body(run);
  } else {
    RunAhead<2> run{at, LineClock(smaller(ceil_div(step, 2), target::kCacheLine))};
    body(run);
  }
}

/// The rows of a matrix, prefetched a line at a time.
struct RowsAhead {
  uintptr_t at = 0, row_end = 0;
  LineClock clock = LineClock();
  int64_t row_bytes = 0, skip = 0;  ///< bytes of a row; bytes from the end of one to the start of the next
  int64_t rows = 0;                 ///< rows left

  /// Prefetches the rows in about `times` calls of advance(). With 0 calls it prefetches nothing.
  template <typename T>
  static RowsAhead over(const T* first, int64_t rows, int64_t columns, int64_t ld, int64_t times) {
    const auto at = reinterpret_cast<uintptr_t>(first);
    const int64_t size = sizeof(T), bytes = columns * size, step = times > 0 ? ceil_div(rows * bytes, times) : 0;
    return {at,
            at + static_cast<uintptr_t>(bytes),
            LineClock(smaller(step, target::kCacheLine)),
            bytes,
            (ld - columns) * size,
            times > 0 ? rows : 0};
  }

  [[gnu::always_inline]] void advance() {
    if (clock.tick()) [[unlikely]]
      ask();
  }

 private:
  void ask() {
    if (rows <= 0) return;
    __builtin_prefetch(reinterpret_cast<const void*>(at));
    at = (at / target::kCacheLine + 1) * target::kCacheLine;  // rows needn't begin with a line
    if (at < row_end) return;
    --rows;
    at = row_end + static_cast<uintptr_t>(skip);
    row_end = at + static_cast<uintptr_t>(row_bytes);
  }
};

/// What a block does with the values in c.
enum class Onto : uint8_t {
  kNothing,  ///< overwrites them
  kSum,      ///< adds them to its own sum, at the end
  kSteps     ///< starts from them: adds its steps one by one, so that the parts of a sum have the bits of the whole
};

/// What the sums of a block start with.
template <typename T, int S, int R>
[[gnu::always_inline]] inline void start_sums(Onto onto, const T* c, int64_t ldc, Vector<T> (&sum)[R][S]) {
  if (onto == Onto::kSteps) {
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) sum[r][s] = load(c + r * ldc + s * Simd<T>::kLanes);
  } else {
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) sum[r][s] = Vector<T>{};
  }
}

/// c[r][0..S*lanes) = sum over k, in order, of a(r, k) * b[k * b_step + 0..S*lanes), r in 0..R-1, all in registers.
/// AlongK: the left operand's k_step is 1, otherwise its row_step is 1.
template <typename T, int S, int R, bool AlongK, typename Ahead>
[[gnu::noinline]] void block(int64_t k, LeftOperand<T> left, const T* b, int64_t b_step, T* c, int64_t ldc, Onto onto,
                             Ahead& ahead) {
  constexpr int kLanes = Simd<T>::kLanes;
  Vector<T> sum[R][S];
  start_sums<T, S, R>(onto, c, ldc, sum);
  if (!AlongK) prefetch_rows<T, S, R>(c, ldc);
  Ahead asks = ahead;  // a copy, which stays in registers
  const T* a = left.data;
  const int64_t row_step = AlongK ? left.row_step : 1;
  const int64_t k_step = AlongK ? 1 : left.k_step;
  for (int64_t i = 0; i < k; ++i) {
    Vector<T> strip[S];
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      strip[s] = load(b + s * kLanes);
      if constexpr (R > 1) keep_in_register(strip[s]);
    }
    asks.advance();
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r) {
      const Vector<T> x = splat(a[r * row_step]);
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) sum[r][s] += x * strip[s];
    }
    a += k_step;
    b += b_step;
  }
  ahead = asks;
  // Hides from the compiler that c is unchanged. Otherwise it computes the addresses of all rows early and spills them.
  asm("" : "+r"(c), "+r"(ldc));
  if (onto == Onto::kSum) {
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) sum[r][s] += load(c + r * ldc + s * kLanes);
  }
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) store(c + r * ldc + s * kLanes, sum[r][s]);
}

/// block() for a row count known at run time, 1..R.
template <typename T, int S, int R, bool AlongK, typename Ahead>
[[gnu::always_inline]] inline void block_of_rows(int64_t rows, int64_t k, LeftOperand<T> left, const T* b,
                                                 int64_t b_step, T* c, int64_t ldc, Onto onto, Ahead& ahead) {
  if (rows == R) {
    block<T, S, R, AlongK>(k, left, b, b_step, c, ldc, onto, ahead);
  } else if constexpr (R > 1) {
    block_of_rows<T, S, R - 1, AlongK>(rows, k, left, b, b_step, c, ldc, onto, ahead);
  }
}

template <typename T, int S, int R, bool AlongK>
[[gnu::always_inline]] inline void block_of_rows(int64_t rows, int64_t k, LeftOperand<T> left, const T* b,
                                                 int64_t b_step, T* c, int64_t ldc, Onto onto) {
  NothingAhead nothing;
  block_of_rows<T, S, R, AlongK>(rows, k, left, b, b_step, c, ldc, onto, nothing);
}

/// Up to this many rows a block has too few accumulators to hide the latency of an FMA; few_rows_block() has more.
constexpr int64_t kFewRows = 3;

/// The register block for few rows: strips of `strip` registers in each of `panels` panels at once.
struct FewRowsShape {
  int strip, panels;
};

constexpr FewRowsShape few_rows_shape(int units, int rows) {
  const int most =
      kVectorBytes == 64 ? 24 : 12;  // accumulators; in addition a register for the panel and `rows` broadcasts
  int strip = units * kRegistersPerUnit;
  while (strip * rows > most) strip /= strip % 2 == 0 ? 2 : 3;
  // By rows and units. Measured: with more panels at once, panels from the second-level cache arrive no faster, or
  // slower.
  constexpr int kPanels64[][5] = {{0, 8, 4, 4, 1}, {0, 4, 2, 1, 1}, {0, 2, 2, 1, 1}};
  constexpr int kPanels32[][5] = {{0, 4, 2, 1, 1}, {0, 2, 1, 1, 1}, {0, 2, 1, 1, 1}};
  if (kVectorBytes == 64) return {strip, kPanels64[rows - 1][units]};
  if (kVectorBytes == 32) return {strip, kPanels32[rows - 1][units]};
  return {strip, rows == 1 && units == 1 ? 2 : 1};
}

/// Like block() for R rows, S registers side by side in each of P panels, which are `panel_size` elements apart; their
/// parts of c are `c_step` apart. Every element has the same sum, in the same order, as with block().
template <typename T, int S, int P, int R>
[[gnu::noinline]] void few_rows_block(int64_t k, const T* a, int64_t lda, const T* b, int64_t b_step,
                                      int64_t panel_size, T* c, int64_t ldc, int64_t c_step, bool accumulate) {
  constexpr int kLanes = Simd<T>::kLanes;
  Vector<T> sum[P][S][R];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
    for (int s = 0; s < S; ++s)
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[p][s][r] = Vector<T>{};
  for (int64_t i = 0; i < k; ++i, b += b_step) {
    Vector<T> x[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) x[r] = splat(a[r * lda + i]);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
      for (int s = 0; s < S; ++s) {
        Vector<T> column = load(b + p * panel_size + s * kLanes);
        if constexpr (R > 1) keep_in_register(column);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sum[p][s][r] += x[r] * column;
      }
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
    for (int s = 0; s < S; ++s)
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        T* to = c + p * c_step + r * ldc + s * kLanes;
        store(to, accumulate ? sum[p][s][r] + load(to) : sum[p][s][r]);
      }
}

template <typename T>
struct PanelsArgs {
  int64_t rows, k;
  const T* a;
  int64_t lda;
  const T* panels;
  int64_t units;  ///< of all panels; the last panel may have more units, of zeros only, whose sums nobody reads
  T* c;
  int64_t ldc, c_step;
  bool accumulate;
  const void* ahead = nullptr;  ///< as of a ProductKernel
  int64_t lines = 0;
};

/// The panels first..count-1, P at a time, then P / 2 and so on. (Sums the zero units too. Without them the last panel
/// would be taken by itself, with too few sums to hide the latency of an FMA.)
template <typename T, int Units, int R, int P>
void few_rows(const PanelsArgs<T>& args, int64_t first) {
  constexpr FewRowsShape kShape = few_rows_shape(Units, R);
  constexpr int64_t kWidth = Units * Simd<T>::kUnitLanes;
  constexpr int64_t kStripWidth = kShape.strip * Simd<T>::kLanes;
  const int64_t panel_size = args.k * kWidth, count = ceil_div(args.units, Units);
  for (; first + P <= count; first += P)
    for (int64_t strip = 0; strip < kWidth; strip += kStripWidth)
      few_rows_block<T, kShape.strip, P, R>(args.k, args.a, args.lda, args.panels + first * panel_size + strip, kWidth,
                                            panel_size, args.c + first * args.c_step + strip, args.ldc, args.c_step,
                                            args.accumulate);
  if constexpr (P > 1)
    if (first < count) few_rows<T, Units, R, P / 2>(args, first);
}

template <typename T, int Units>
[[gnu::always_inline]] inline void few_rows(const PanelsArgs<T>& args) {
  if (args.rows == 1) few_rows<T, Units, 1, few_rows_shape(Units, 1).panels>(args, 0);
  if (args.rows == 2) few_rows<T, Units, 2, few_rows_shape(Units, 2).panels>(args, 0);
  if (args.rows == 3) few_rows<T, Units, 3, few_rows_shape(Units, 3).panels>(args, 0);
}

/// Steps of a panel that several blocks of rows go over before the next steps. This part of the panel stays in the
/// core's own cache meanwhile, and a block's part of the left operand in the first-level cache.
constexpr int64_t kPartSteps = 512;

/// Calls body<registers side by side>(first column) for the strips of the first `units` units of a panel of Units.
template <typename T, int Units, int Strip, typename Body>
[[gnu::always_inline]] inline void for_strips(int64_t units, const Body& body) {
  if constexpr (kVectorBytes != 64 || Strip < Units) {
    for (int64_t column = 0; column < smaller(units, Units) * Simd<T>::kUnitLanes; column += Strip * Simd<T>::kLanes)
      body.template operator()<Strip>(column);
  } else if (units >= Units) {
    body.template operator()<Units>(0);
  } else if constexpr (Units > 1) {
    for_strips<T, Units - 1, Strip>(units, body);
  }
}

/// The steps k0..k0+steps-1 of a panel, by all rows. Rows are cut into blocks of nearly the same size: 9 rows are 5 and
/// 4, not 8 and a slow 1.
template <typename T, int Units, BlockShape kShape, typename Ahead>
[[gnu::always_inline]] inline void part_of_panel(const PanelsArgs<T>& args, int64_t p, int64_t k0, int64_t steps,
                                                 Onto onto, int64_t blocks, Ahead& ahead) {
  constexpr int64_t kWidth = Units * Simd<T>::kUnitLanes;
  const T* part = args.panels + (p * args.k + k0) * kWidth;
  for_strips<T, Units, kShape.strip>(args.units - p * Units, [&]<int Strip>(int64_t column) {
    const T* a = args.a + k0;
    T* c = args.c + p * args.c_step + column;
    for (int64_t left = args.rows, block = blocks; block > 0; --block) {
      const int64_t count = ceil_div(left, block);
      block_of_rows<T, Strip, kShape.rows, true>(count, steps, {a, args.lda, 1}, part + column, kWidth, c, args.ldc,
                                                 onto, ahead);
      a += count * args.lda;
      c += count * args.ldc;
      left -= count;
    }
  });
}

/// Divides each of `count` panels into parts of `part_steps` steps, and calls body(panel, first step, steps, onto) for
/// each part. A panel is one part if there is only one block of rows, or if the result is added to c
/// (`args.accumulate`).
template <typename Args, typename Body>
[[gnu::always_inline]] inline void for_parts(const Args& args, int64_t count, int64_t blocks, int64_t part_steps,
                                             const Body& body) {
  const int64_t most = blocks > 1 && !args.accumulate ? part_steps : args.k + 1;
  for (int64_t p = 0; p < count; ++p)
    for (int64_t k0 = 0; k0 == 0 || k0 < args.k; k0 += most) {
      const Onto onto = k0 > 0 ? Onto::kSteps : args.accumulate ? Onto::kSum : Onto::kNothing;
      body(p, k0, smaller(most, args.k - k0), onto);
    }
}

template <typename T, int Units, BlockShape kShape, typename Ahead>
void many_rows(const PanelsArgs<T>& args, int64_t blocks, Ahead& ahead) {
  for_parts(args, ceil_div(args.units, Units), blocks, kPartSteps,
            [&](int64_t p, int64_t k0, int64_t steps, Onto onto) {
              part_of_panel<T, Units, kShape>(args, p, k0, steps, onto, blocks, ahead);
            });
}

template <typename T, int Units, BlockShape kShape = block_shape(Units)>
void many_rows(const PanelsArgs<T>& args) {
  const int64_t blocks = ceil_div(args.rows, kShape.rows);
  const int64_t calls = ceil_div(args.units, Units) * (Units * kRegistersPerUnit / kShape.strip) * blocks;
  with_run_ahead(args.ahead, args.lines, calls * args.k,
                 [&](auto& ahead) { many_rows<T, Units, kShape>(args, blocks, ahead); });
}

/// Operands of no steps may have no memory. Nothing is read from them, but their addresses are still incremented, which
/// is undefined for null pointers. So the result's address, which has as many rows and columns, takes their place.
inline void stand_in(int64_t k, const void*& a, int64_t& lda, const void*& panels, const void* c, int64_t ldc) {
  if (k > 0) return;
  a = panels = c;
  lda = ldc;
}

/// PanelsArgs::units for the panels first..first+count-1 of a product.
template <typename T, int Units>
int64_t units_of_panels(const ProductLayout& layout, int64_t first, int64_t count) {
  if (layout.groups > 1) return count * Units;  // a unit of each group
  return smaller(count * Units, ceil_div(layout.n, Simd<T>::kUnitLanes) - first * Units);
}

template <typename T, int Units>
void tile_units(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panels, int64_t units, void* c,
                int64_t ldc, int64_t c_step, bool accumulate, const void* ahead, int64_t lines) {
  stand_in(k, a, lda, panels, c, ldc);
  const PanelsArgs<T> args{rows,
                           k,
                           static_cast<const T*>(a),
                           lda,
                           static_cast<const T*>(panels),
                           units,
                           static_cast<T*>(c),
                           ldc,
                           c_step,
                           accumulate,
                           ahead,
                           lines};
  if constexpr (is_for_eight_rows(Units, kEightRows.rows))
    if (is_for_eight_rows(Units, rows)) return many_rows<T, Units, kEightRows>(args);
  if (rows > kFewRows) {
    many_rows<T, Units>(args);
  } else if (rows > 0) {
    few_rows<T, Units>(args);
  }
}

template <typename T, int Units>
void tile_panels(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panels, int64_t count, void* c,
                 int64_t ldc, int64_t c_step, int64_t accumulate) {
  tile_units<T, Units>(rows, k, a, lda, panels, count * Units, c, ldc, c_step, accumulate != 0, nullptr, 0);
}

template <typename T, int Units>
void tile(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panel, void* c, int64_t ldc,
          int64_t accumulate) {
  tile_panels<T, Units>(rows, k, a, lda, panel, 1, c, ldc, 0, accumulate);
}

}  // namespace
}  // namespace weft::runtime
