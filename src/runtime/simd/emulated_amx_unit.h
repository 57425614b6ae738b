#pragma once

#include "runtime/simd/tile_config.h"

namespace weft::runtime {
namespace {

// The tile unit in plain C++, for tests on processors that have none. After the pseudo code of TDPBF16PS (Intel SDM,
// vol. 2): within one multiplication the first and the second steps of pairs have sums of their own. Every operation
// rounds to the nearest even, takes denormals for zeros and makes zeros of them. What a NaN's bits are is left open.

inline float number(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }

/// x, or zero of the same sign if x is denormal.
inline float without_denormal(float x) {
  const uint32_t bits = bits_of(x);
  return (bits & 0x7f800000) == 0 ? number(bits & 0x80000000) : x;
}

/// Rounds to f32, and makes zeros of results that are still denormal. x must come from f64 operations whose operands
/// are f32: rounding twice then equals rounding once, since f64 has more than twice the digits of f32.
inline float rounded(double x) {
  constexpr double kLeast = 0x1.ffffffp-127;  // the least number that rounds up to the smallest normal number
  const float zero = number(x < 0 || (x == 0 && __builtin_signbit(x)) ? 0x80000000 : 0);
  return __builtin_fabs(x) < kLeast ? zero : static_cast<float>(x);
}

/// sum + x y, rounded once: the product of two bf16 is exact.
inline float fused(float sum, float x, float y) { return rounded(double{sum} + double{x} * double{y}); }

struct EmulatedAmxUnit {
  static void configure(const TileConfig& wanted) {
    if (!__builtin_memcmp(&state.config, &wanted, sizeof(wanted))) return;
    state = {};
    state.config = wanted;
  }
  static void release() { state = {}; }
  static bool is_configured() { return state.config.palette != 0; }

  template <int Tile>
  static void zero() {
    zero(Tile);
  }
  template <int Tile>
  static void load(const void* rows, int64_t step) {
    load(Tile, rows, step);
  }
  template <int Tile>
  static void store(void* rows, int64_t step) {
    store(Tile, rows, step);
  }
  template <int Result, int Left, int Right>
  static void multiply() {
    multiply(Result, Left, Right);
  }

  static void zero(int tile) {
    check(is_configured());
    state.tile[tile] = {};
  }

  static void load(int tile, const void* rows, int64_t step) {
    zero(tile);
    for (int r = 0; r < state.config.rows[tile]; ++r)
      __builtin_memcpy(state.tile[tile].rows[r], static_cast<const char*>(rows) + r * step,
                       state.config.row_bytes[tile]);
  }

  static void store(int tile, void* rows, int64_t step) {
    check(is_configured());
    for (int r = 0; r < state.config.rows[tile]; ++r)
      __builtin_memcpy(static_cast<char*>(rows) + r * step, state.tile[tile].rows[r], state.config.row_bytes[tile]);
  }

  static void multiply(int result, int left, int right) {
    const TileConfig& config = state.config;
    check(is_configured() && config.rows[result] == config.rows[left] &&
          config.row_bytes[result] == config.row_bytes[right] && config.row_bytes[left] == 4 * config.rows[right]);
    for (int m = 0; m < config.rows[result]; ++m) {
      float first[kLanes] = {}, second[kLanes] = {};
      for (int k = 0; k < config.rows[right]; ++k) {
        const uint32_t pair = state.tile[left].rows[m][k];
        const float x = low(pair), y = high(pair);
        for (int n = 0; n < kLanes; ++n) {
          const uint32_t weights = state.tile[right].rows[k][n];
          first[n] = fused(first[n], x, low(weights));
          second[n] = fused(second[n], y, high(weights));
        }
      }
      for (int n = 0; n < kLanes; ++n) {
        uint32_t& sum = state.tile[result].rows[m][n];
        sum = bits_of(rounded(double{without_denormal(number(sum))} + double{rounded(double{first[n]} + second[n])}));
      }
    }
  }

  static const TileConfig& config() { return state.config; }

 private:
  static constexpr int kLanes = kTileBytes / 4;

  struct Tile {
    uint32_t rows[kTileRows][kLanes];
  };
  struct State {
    TileConfig config;
    Tile tile[8];
  };

  static float low(uint32_t pair) { return without_denormal(number(pair << 16)); }
  static float high(uint32_t pair) { return without_denormal(number(pair & 0xffff0000)); }

  /// The processor faults.
  static void check(bool allowed) {
    if (!allowed) __builtin_trap();
  }

  static inline thread_local constinit State state{};
};

}  // namespace
}  // namespace weft::runtime
