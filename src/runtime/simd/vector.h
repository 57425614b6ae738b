#pragma once

// The headers of this folder are only for the sources that are compiled once per instruction set (kernels_<isa>.cpp).
// Everything in them is in an unnamed namespace and uses no function or template of the standard library: the linker keeps
// one copy of such a function for the whole program, perhaps the one with instructions that this CPU lacks.

#include <cstdint>

namespace weft::runtime {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

/// A panel's unit (a "vector" in kernels.h) is 64 bytes for every ISA: this many registers.
constexpr int kRegistersPerUnit = 64 / kVectorBytes;

template <typename T>
struct Simd;

template <>
struct Simd<float> {
  using Vector __attribute__((vector_size(kVectorBytes))) = float;
  using Unaligned __attribute__((vector_size(kVectorBytes), aligned(4), may_alias)) = float;
  static constexpr int kLanes = kVectorBytes / 4;
  static constexpr int kUnitLanes = 16;
};

template <>
struct Simd<double> {
  using Vector __attribute__((vector_size(kVectorBytes))) = double;
  using Unaligned __attribute__((vector_size(kVectorBytes), aligned(8), may_alias)) = double;
  static constexpr int kLanes = kVectorBytes / 8;
  static constexpr int kUnitLanes = 8;
};

template <typename T>
using Vector = typename Simd<T>::Vector;

template <typename T>
[[gnu::always_inline]] inline Vector<T> load(const T* p) {
  return *reinterpret_cast<const typename Simd<T>::Unaligned*>(p);
}

template <typename T>
[[gnu::always_inline]] inline void store(T* p, Vector<T> v) {
  *reinterpret_cast<typename Simd<T>::Unaligned*>(p) = v;
}

/// x in every lane (x - 0 is x, also for -0, and the compiler drops it).
template <typename T>
[[gnu::always_inline]] inline Vector<T> splat(T x) {
  return x - Vector<T>{};
}

/// Keeps a loaded vector in a register: the compiler would rather load it again for every use than spend a register, and
/// loads are what a core has two of a cycle.
template <typename V>
[[gnu::always_inline]] inline void keep_in_register(V& v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#endif
}

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace
}  // namespace weft::runtime
