#pragma once

#include <immintrin.h>

#include "runtime/simd/tile_config.h"

namespace weft::runtime {
namespace {

/// The tile unit of the processor. The compiler's own functions for it want the numbers of tiles as literals, and in
/// g++ are assembly as well. No compiler keeps values of its own in tiles.
struct AmxUnit {
  /// Sets the shapes of this thread's tiles unless they are set already. The processor is asked for the current shapes,
  /// since other code may have set or released tiles. Setting them at each call would cost more, since that zeroes all
  /// tiles.
  static void configure(const TileConfig& wanted) {
    TileConfig now;
    asm volatile("sttilecfg %0" : "=m"(now));
    if (_mm512_cmpneq_epi64_mask(_mm512_load_si512(&now), _mm512_load_si512(&wanted)) != 0)
      asm volatile("ldtilecfg %0" : : "m"(wanted));
  }

  /// Releases the tiles, so that a context switch needn't save them.
  static void release() { asm volatile("tilerelease"); }

  template <int Tile>
  [[gnu::always_inline]] static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
  }

  /// The rows of a tile, `step` bytes apart.
  template <int Tile>
  [[gnu::always_inline]] static void load(const void* rows, int64_t step) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(step), "i"(Tile) : "memory");
  }
  template <int Tile>
  [[gnu::always_inline]] static void store(void* rows, int64_t step) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(step), "i"(Tile) : "memory");
  }

  /// result += left * right.
  template <int Result, int Left, int Right>
  [[gnu::always_inline]] static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Result), "i"(Left), "i"(Right));
  }
};

}  // namespace
}  // namespace weft::runtime
