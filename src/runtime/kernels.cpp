#include "runtime/kernels.h"

#include "base/error.h"
#include "base/settings.h"
#include "runtime/announced_kernels.h"
#include "runtime/isa_tables.h"

namespace weft::runtime {
namespace {

/// Whether the CPU has the instructions of kernels_<isa>.cpp, and the operating system saves their registers.
bool has_features(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (isa == Isa::kAvx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == Isa::kAvx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_features(Isa::kAvx2);
#endif
  return isa == Isa::kGeneric;
}

// The table, or for ThreadSanitizer its kernels with their accesses announced.

template <const DTypeKernels& kSingle, const DTypeKernels& kDouble>
const DTypeKernels& either(bool single) {
  if constexpr (kThreadSanitizer)
    return single ? AnnouncedKernels<kSingle, float>::kAnnounced : AnnouncedKernels<kDouble, double>::kAnnounced;
  return single ? kSingle : kDouble;
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
  }
  internal_error("no instruction set {}", static_cast<int>(isa));
}

bool supports(Isa isa) { return has_features(isa); }

Isa active_isa() {
  const std::string& wanted = settings().isa;
  for (Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kGeneric}) {
    if (wanted.empty() ? supports(isa) : wanted == name_of(isa)) {
      check(supports(isa), "WEFT_ISA={}: this CPU lacks it", wanted);
      return isa;
    }
  }
  user_error("WEFT_ISA={}: unknown instruction set; known are avx512, avx2, generic", wanted);
}

const DTypeKernels& kernels(Isa isa, DType dtype) {
  internal_check(dtype == DType::kF32 || dtype == DType::kF64, "no micro-kernels for {}", name_of(dtype));
  const bool single = dtype == DType::kF32;
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return either<kAvx512F32, kAvx512F64>(single);
  if (isa == Isa::kAvx2) return either<kAvx2F32, kAvx2F64>(single);
#endif
  internal_check(isa == Isa::kGeneric, "no micro-kernels for {}", name_of(isa));
  return either<kGenericF32, kGenericF64>(single);
}

const FoldKernels& fold_kernels(Isa isa) {
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

const PairKernels& pair_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return has_bf16_instructions() ? pairs<kAvx512Bf16Pairs>() : pairs<kAvx512Pairs>();
  if (isa == Isa::kAvx2) return pairs<kAvx2Pairs>();
#endif
  internal_check(isa == Isa::kGeneric, "no micro-kernels for {}", name_of(isa));
  return pairs<kGenericPairs>();
}

const ByteRowsKernels& byte_rows_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512)
    return __builtin_cpu_supports("avx512vnni") ? byte_rows<kAvx512VnniByteRows>() : byte_rows<kAvx512ByteRows>();
  if (isa == Isa::kAvx2) return byte_rows<kAvx2ByteRows>();
#endif
  internal_check(isa == Isa::kGeneric, "no micro-kernels for {}", name_of(isa));
  return byte_rows<kGenericByteRows>();
}

}  // namespace weft::runtime
