#include "packages/target.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>

#include "base/error.h"

namespace weft::packages {
namespace {

// Only the features that the name promises: a package computes the same bits on every machine of its target.
constexpr Target kX86V3 = {
    .name = "x86-64-v3",
    .architecture = "x86_64",
    .triple = "x86_64-unknown-linux-gnu",
    .cpu = "x86-64-v3",
    .features = "",
    .abi = "",
    .vector_bytes = 32,
    .registers = 16,
    .chains = 8,
    .steps = 16,
    .rounds = true,
    .f16c = true,
    .fused = true,
    .pairs = true,
    .dots = Dots::kSignsMoved,
    .byte_sums = 8,
};
constexpr Target kX86V4 = {
    .name = "x86-64-v4",
    .architecture = "x86_64",
    .triple = "x86_64-unknown-linux-gnu",
    .cpu = "x86-64-v4",
    .features = "-prefer-256-bit",
    .abi = "",
    .vector_bytes = 64,
    .registers = 32,
    .chains = 8,
    .steps = 16,
    .rounds = true,
    .avx512 = true,
    .f16c = true,
    .fused = true,
    .pairs = true,
    .dots = Dots::kSignsMoved,
};
constexpr Target kAarch64 = {
    .name = "aarch64",
    .architecture = "aarch64",
    .triple = "aarch64-unknown-linux-gnu",
    .cpu = "generic",
    .features = "+neon",
    .abi = "",
    .vector_bytes = 16,
    .registers = 32,
    .chains = 8,
    .steps = 16,
    .rounds = true,
    .f16c = true,
    .fused = true,
    .dots = Dots::kLong,
    .byte_sums = 6,
};
constexpr Target kCortexM4 = {
    .name = "cortex-m4",
    .architecture = "armv7e-m",
    .triple = "thumbv7em-none-eabihf",
    .cpu = "cortex-m4",
    .features = "",
    .abi = "",
    .vector_bytes = 4,
    .registers = 24,
    .chains = 2,
    .wide_functions = false,
    .rounds = false,
    .f16c = true,
    .fixed_addresses = true,
    .hard_floats = true,
    .dots = Dots::kHalfwords,
    .byte_sums = 6,
};

/// The target with another name, architecture and triple, for another operating system or a similar machine.
constexpr Target with(Target target, std::string_view name, std::string_view architecture, std::string_view triple) {
  target.name = name;
  target.architecture = architecture;
  target.triple = triple;
  return target;
}

/// The target with an instruction that adds up four products of bytes.
constexpr Target with_dots(Target target, std::string_view name, std::string_view features, Dots dots) {
  target.name = name;
  target.features = features;
  target.dots = dots;
  target.byte_sums = 0;
  target.for_bytes = true;
  return target;
}

constexpr Target cortex_m7() {
  Target target = with(kCortexM4, "cortex-m7", kCortexM4.architecture, kCortexM4.triple);
  target.cpu = "cortex-m7";
  target.features = "-fp64";  // some have a unit for f32 alone
  target.chains = 4;
  target.rounds = true;
  target.rounds_to_even = false;  // LLVM 19 doesn't know its instruction
  return target;
}

/// With a unit for f64 as well.
constexpr Target cortex_m7_f64() {
  Target target = with(cortex_m7(), "cortex-m7-f64", kCortexM4.architecture, kCortexM4.triple);
  target.features = "";
  return target;
}

constexpr Target cortex_m33() {
  Target target = with(kCortexM4, "cortex-m33", "armv8-m", "thumbv8m.main-none-eabihf");
  target.cpu = "cortex-m33";
  return target;
}

constexpr Target aarch64_macos() {
  Target target = with(kAarch64, "aarch64-macos", "aarch64-macos", "arm64-apple-macosx11.0");
  target.cpu = "apple-m1";
  target.features = "";
  target.dots = Dots::kSigned;
  target.byte_sums = 0;
  return target;
}

constexpr Target kTargets[] = {
    {.name = "x86-64",
     .architecture = "x86_64",
     .triple = "x86_64-unknown-linux-gnu",
     .cpu = "x86-64",
     .features = "",
     .abi = "",
     .vector_bytes = 16,
     .registers = 16,
     .chains = 8,
     .steps = 16,
     .rounds = false,
     .pairs = true,
     .dots = Dots::kPairs,
     .byte_sums = 8},
    kX86V3,
    with_dots(kX86V3, "x86-64-v3-avxvnni", "+avxvnni", Dots::kUnsigned),
    kX86V4,
    with_dots(kX86V4, "x86-64-v4-vnni", "-prefer-256-bit,+avx512vnni", Dots::kUnsigned),
    kAarch64,
    with_dots(kAarch64, "aarch64-dotprod", "+neon,+dotprod", Dots::kSigned),
    {.name = "riscv64",
     .architecture = "riscv64",
     .triple = "riscv64-unknown-linux-gnu",
     .cpu = "generic-rv64",
     .features = "+m,+a,+f,+d,+c",
     .abi = "lp64d",
     .vector_bytes = 4,
     .registers = 32,
     .chains = 4,
     .steps = 16,
     .rounds = false,
     .fused = true,
     .byte_sums = 12},
    kCortexM4,
    cortex_m7(),
    cortex_m7_f64(),
    cortex_m33(),
    {.name = "wasm32",
     .architecture = "wasm32",
     .triple = "wasm32-unknown-unknown",
     .cpu = "generic",
     .features = "+simd128",
     .abi = "",
     .vector_bytes = 16,
     .registers = 16,
     .chains = 4,
     .steps = 16,
     .rounds = true,
     .fixed_addresses = true,
     .dots = Dots::kPairs},
    aarch64_macos(),
    with(kX86V3, "x86-64-v3-macos", "x86_64-macos", "x86_64-apple-macosx11.0"),
    with(kX86V3, "x86-64-v3-windows", "x86_64-windows", "x86_64-pc-windows-msvc"),
};

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target& find_target(std::string_view name) {
  for (const Target& target : kTargets)
    if (target.name == name) return target;
  std::string known;
  for (const Target& target : kTargets) known += (known.empty() ? "" : ", ") + std::string(target.name);
  user_error("weft.package: there is no target '{}'; there are {}", name, known);
}

bool runs_here(const Target& target) {
  const llvm::Triple triple(llvm::sys::getProcessTriple()), other(target.triple);
  if (triple.getArch() != other.getArch() || !other.isOSLinux()) return false;
  const auto features = llvm::sys::getHostCPUFeatures();
  const auto has = [&](auto... names) { return (features.lookup(names) && ...); };
  if (triple.getArch() != llvm::Triple::x86_64) return target.dots != Dots::kSigned || has("dotprod");
  if (target.cpu == "x86-64") return true;
  if (!has("avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe")) return false;
  if (target.cpu == "x86-64-v3") return !target.for_bytes || has("avxvnni");
  return has("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl") && (!target.for_bytes || has("avx512vnni"));
}

std::string_view host_target(bool bytes) {
  std::string_view best;
  for (const Target& target : kTargets)
    if ((bytes || !target.for_bytes) && runs_here(target)) best = target.name;
  check(!best.empty(), "weft.package: this machine ({}) is no target: name one", llvm::sys::getProcessTriple());
  return best;
}

}  // namespace weft::packages
