#include "runtime/kernels/kernels.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>

#include "base/error.h"
#include "base/settings.h"
#include "runtime/kernels/announced_kernels.h"
#include "runtime/kernels/isa_tables.h"
#include "runtime/threads/cores.h"

namespace weft::runtime {
namespace {

/// Asks the system for the tile unit; whether this process may use it. Linux enables it on request:
/// arch_prctl(ARCH_REQ_XCOMP_PERM) of the state XTILEDATA (Documentation/arch/x86/xstate.rst). Threads and children
/// inherit the permission.
bool asks_for_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

enum class Answer : uint8_t { kNone, kNo, kYes };
constinit std::atomic<Answer> may_use_tiles = Answer::kNone;

bool has_tiles() {
  Answer answer = may_use_tiles.load(std::memory_order_relaxed);
  if (answer == Answer::kNone) {
    answer = asks_for_tiles() ? Answer::kYes : Answer::kNo;  // asking twice does no harm
    may_use_tiles.store(answer, std::memory_order_relaxed);
  }
  return answer == Answer::kYes;
}

/// PairKernels::release of the table in use, if it has one.
constinit std::atomic<void (*)()> release_in_use = nullptr;

/// Whether the CPU has the instructions of kernels_<isa>.cpp, and the operating system saves the registers that they
/// use.
bool has_features(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (isa == Isa::kAvx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (isa == Isa::kAvx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_features(Isa::kAvx2);
  if (isa == Isa::kAmx)
    return __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-tile") &&
           __builtin_cpu_supports("avx512bf16") && has_features(Isa::kAvx512) && has_tiles();
#endif
  return isa == Isa::kGeneric || isa == Isa::kAmxEmulated;
}

// The table, or in a build for ThreadSanitizer one whose kernels announce their accesses.

template <const DTypeKernels& kSingle, const DTypeKernels& kDouble>
const DTypeKernels& either(bool single) {
  if constexpr (kThreadSanitizer)
    return single ? AnnouncedKernels<kSingle, float>::kAnnounced : AnnouncedKernels<kDouble, double>::kAnnounced;
  return single ? kSingle : kDouble;
}

template <const WidenedKernels& kF16, const WidenedKernels& kI8>
const WidenedKernels& widened(bool is_f16) {
  if constexpr (kThreadSanitizer)
    return is_f16 ? AnnouncedWidened<kF16, 2>::kAnnounced : AnnouncedWidened<kI8, 1>::kAnnounced;
  return is_f16 ? kF16 : kI8;
}

template <const F16OuterKernels& kTable>
const F16OuterKernels& f16_outer() {
  if constexpr (kThreadSanitizer) return AnnouncedF16Outer<kTable>::kAnnounced;
  return kTable;
}

template <const FoldKernels& kTable>
const FoldKernels& folds() {
  if constexpr (kThreadSanitizer) return AnnouncedFolds<kTable>::kAnnounced;
  return kTable;
}

template <const PairKernels& kTable>
const PairKernels& pairs() {
  if constexpr (kThreadSanitizer) return AnnouncedPairs<kTable>::kAnnounced;
  return kTable;
}

template <const ByteRowsKernels& kTable>
const ByteRowsKernels& byte_rows() {
  if constexpr (kThreadSanitizer) return AnnouncedByteRows<kTable>::kAnnounced;
  return kTable;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
    case Isa::kAmxEmulated:
      return "amx_emulated";
  }
  internal_error("no instruction set {}", static_cast<int>(isa));
}

bool supports(Isa isa) { return has_features(isa); }

Isa vector_isa(Isa isa) {
  if (isa == Isa::kAmx) return Isa::kAvx512;
  if (isa != Isa::kAmxEmulated) return isa;
  return supports(Isa::kAvx512) ? Isa::kAvx512 : supports(Isa::kAvx2) ? Isa::kAvx2 : Isa::kGeneric;
}

Isa active_isa() {
  const std::string& wanted = settings().isa;
  for (Isa isa : {Isa::kAmx, Isa::kAvx512, Isa::kAvx2, Isa::kGeneric, Isa::kAmxEmulated}) {
    if (wanted.empty() ? supports(isa) : wanted == name_of(isa)) {
      check(supports(isa), "WEFT_ISA={}: this CPU lacks it{}", wanted,
            isa == Isa::kAmx ? ", or Linux does not permit it" : "");
      return isa;
    }
  }
  user_error("WEFT_ISA={}: unknown instruction set; known are amx, avx512, avx2, generic, amx_emulated", wanted);
}

const DTypeKernels& kernels(Isa isa, DType dtype) {
  isa = vector_isa(isa);
  internal_check(dtype == DType::kF32 || dtype == DType::kF64, "no micro-kernels for {}", name_of(dtype));
  const bool single = dtype == DType::kF32;
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return either<kAvx512F32, kAvx512F64>(single);
  if (isa == Isa::kAvx2) return either<kAvx2F32, kAvx2F64>(single);
#endif
  internal_check(isa == Isa::kGeneric, "no micro-kernels for {}", name_of(isa));
  return either<kGenericF32, kGenericF64>(single);
}

const WidenedKernels& widened_kernels(Isa isa, DType weights) {
  isa = vector_isa(isa);
  internal_check(weights == DType::kF16 || weights == DType::kI8, "no micro-kernels for {}", name_of(weights));
  const bool is_f16 = weights == DType::kF16;
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return widened<kAvx512F16, kAvx512I8>(is_f16);
  if (isa == Isa::kAvx2) return widened<kAvx2F16, kAvx2I8>(is_f16);
#endif
  internal_check(isa == Isa::kGeneric, "no micro-kernels for {}", name_of(isa));
  return widened<kGenericF16, kGenericI8>(is_f16);
}

const F16OuterKernels& f16_outer_kernels(Isa isa) {
  isa = vector_isa(isa);
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return f16_outer<kAvx512F16Outer>();
  if (isa == Isa::kAvx2) return f16_outer<kAvx2F16Outer>();
#endif
  internal_check(isa == Isa::kGeneric, "no micro-kernels for {}", name_of(isa));
  return f16_outer<kGenericF16Outer>();
}

const FoldKernels& fold_kernels(Isa isa) {
  isa = vector_isa(isa);
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return folds<kAvx512Folds>();
  if (isa == Isa::kAvx2) return folds<kAvx2Folds>();
#endif
  internal_check(isa == Isa::kGeneric, "no kernels for {}", name_of(isa));
  return folds<kGenericFolds>();
}

bool has_bf16_instructions() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

namespace {

/// Whether products of bf16 are fastest with the CPU's instruction for them. Intel's does half the work per second of
/// its f32 FMAs (Granite Rapids: 122 GF/s, f32 245), so there pairs are widened to f32.
bool multiplies_pairs_fast() { return has_bf16_instructions() && core_kind() != CoreKind::kIntel; }

const PairKernels& choose_pairs(Isa isa) {
  if (isa == Isa::kAmxEmulated) return pairs<kEmulatedAmxPairs>();
#if defined(__x86_64__)
  if (isa == Isa::kAmx) return pairs<kAmxPairs>();
  if (isa == Isa::kAvx512) return multiplies_pairs_fast() ? pairs<kAvx512Bf16Pairs>() : pairs<kAvx512Pairs>();
  if (isa == Isa::kAvx2) return pairs<kAvx2Pairs>();
#endif
  internal_check(isa == Isa::kGeneric, "no micro-kernels for {}", name_of(isa));
  return pairs<kGenericPairs>();
}

}  // namespace

const PairKernels& pair_kernels(Isa isa) {
  const PairKernels& chosen = choose_pairs(isa);
  if (chosen.release) release_in_use.store(chosen.release, std::memory_order_relaxed);
  return chosen;
}

void release_tiles() {
  if (void (*release)() = release_in_use.load(std::memory_order_relaxed)) release();
}

const ByteRowsKernels& byte_rows_kernels(Isa isa) {
  isa = vector_isa(isa);
#if defined(__x86_64__)
  if (isa == Isa::kAvx512)
    return __builtin_cpu_supports("avx512vnni") ? byte_rows<kAvx512VnniByteRows>() : byte_rows<kAvx512ByteRows>();
  if (isa == Isa::kAvx2) return byte_rows<kAvx2ByteRows>();
#endif
  internal_check(isa == Isa::kGeneric, "no micro-kernels for {}", name_of(isa));
  return byte_rows<kGenericByteRows>();
}

ByteProducts byte_products(Isa isa) {
  isa = vector_isa(isa);
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (isa == Isa::kAvx512 && __builtin_cpu_supports("avx512vnni")) return ByteProducts::kFaster;
#endif
  if (isa == Isa::kAvx2 && core_kind() == CoreKind::kZen1) return ByteProducts::kSlower;
  return ByteProducts::kFewRowsOnly;
}

int64_t rows_while_streaming(Isa isa) {
  const bool wide = vector_isa(isa) == Isa::kAvx512;
  // Cores on a mesh read 28 GB/s, at 85 to 120 multiply-adds a nanosecond with AVX-512. (Xeon without AMX, two threads,
  // forward, columns shared as by 12, not rows as by 4: LSTM B16 T20 H1024 29.7 and 37.7 ms, B22 T23 H754 23.4 and
  // 26.1. GRU B24 T20 H1024 takes 34.8 and 34.5: it shares columns from 16 on, 31.6.)
  if (core_kind() == CoreKind::kIntel) return wide ? 12 : 6;
  // 131 multiply-adds a nanosecond, twice Zen 4's. (Zen 5, us a step by one thread, weights from L3, 1, 4, 6 and 12
  // rows: LSTM of 531 units f32 39, 59, 68 and 127, of 1020 units bfloat16 77, 113, 124 and 229.)
  if (wide && core_kind() == CoreKind::kZen5) return 7;
  return 4;  // four bytes a multiply-add at 25 to 60 a nanosecond are 100 to 240 GB/s; cores read 25 to 98 (Zen 1 to 4)
}

}  // namespace weft::runtime
