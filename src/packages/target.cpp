#include "packages/target.h"

#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>

#include "base/error.h"

namespace weft::packages {
namespace {

// Features are those that the name promises, and no more: what a package computes is the same on every machine of its
// target, to the bit.
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
     .rounds = false},
    {.name = "x86-64-v3",
     .architecture = "x86_64",
     .triple = "x86_64-unknown-linux-gnu",
     .cpu = "x86-64-v3",
     .features = "",
     .abi = "",
     .vector_bytes = 32,
     .registers = 16,
     .chains = 8,
     .rounds = true,
     .f16c = true},
    {.name = "x86-64-v4",
     .architecture = "x86_64",
     .triple = "x86_64-unknown-linux-gnu",
     .cpu = "x86-64-v4",
     .features = "-prefer-256-bit",
     .abi = "",
     .vector_bytes = 64,
     .registers = 32,
     .chains = 8,
     .rounds = true,
     .avx512 = true,
     .f16c = true},
    {.name = "aarch64",
     .architecture = "aarch64",
     .triple = "aarch64-unknown-linux-gnu",
     .cpu = "generic",
     .features = "+neon",
     .abi = "",
     .vector_bytes = 16,
     .registers = 32,
     .chains = 8,
     .rounds = true,
     .f16c = true},
    {.name = "riscv64",
     .architecture = "riscv64",
     .triple = "riscv64-unknown-linux-gnu",
     .cpu = "generic-rv64",
     .features = "+m,+a,+f,+d,+c",
     .abi = "lp64d",
     .vector_bytes = 4,
     .registers = 32,
     .chains = 4,
     .rounds = false},
    {.name = "cortex-m4",
     .architecture = "armv7e-m",
     .triple = "thumbv7em-none-eabihf",
     .cpu = "cortex-m4",
     .features = "",
     .abi = "",
     .vector_bytes = 4,
     .registers = 24,
     .chains = 2,
     .rounds = false,
     .fixed_addresses = true,
     .hard_floats = true},
    {.name = "cortex-m7",
     .architecture = "armv7e-m",
     .triple = "thumbv7em-none-eabihf",
     .cpu = "cortex-m7",
     .features = "",
     .abi = "",
     .vector_bytes = 4,
     .registers = 24,
     .chains = 4,
     .rounds = true,
     .fixed_addresses = true,
     .hard_floats = true},
    {.name = "cortex-m33",
     .architecture = "armv8-m",
     .triple = "thumbv8m.main-none-eabihf",
     .cpu = "cortex-m33",
     .features = "",
     .abi = "",
     .vector_bytes = 4,
     .registers = 24,
     .chains = 2,
     .rounds = false,
     .fixed_addresses = true,
     .hard_floats = true},
    {.name = "wasm32",
     .architecture = "wasm32",
     .triple = "wasm32-unknown-unknown",
     .cpu = "generic",
     .features = "+simd128",
     .abi = "",
     .vector_bytes = 16,
     .registers = 16,
     .chains = 4,
     .rounds = true,
     .fixed_addresses = true},
    {.name = "aarch64-macos",
     .architecture = "aarch64-macos",
     .triple = "arm64-apple-macosx11.0",
     .cpu = "apple-m1",
     .features = "",
     .abi = "",
     .vector_bytes = 16,
     .registers = 32,
     .chains = 8,
     .rounds = true,
     .f16c = true},
    {.name = "x86-64-v3-macos",
     .architecture = "x86_64-macos",
     .triple = "x86_64-apple-macosx11.0",
     .cpu = "x86-64-v3",
     .features = "",
     .abi = "",
     .vector_bytes = 32,
     .registers = 16,
     .chains = 8,
     .rounds = true,
     .f16c = true},
    {.name = "x86-64-v3-windows",
     .architecture = "x86_64-windows",
     .triple = "x86_64-pc-windows-msvc",
     .cpu = "x86-64-v3",
     .features = "",
     .abi = "",
     .vector_bytes = 32,
     .registers = 16,
     .chains = 8,
     .rounds = true,
     .f16c = true},
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

std::string_view host_target() {
  const llvm::Triple triple(llvm::sys::getProcessTriple());
  if (triple.getArch() == llvm::Triple::aarch64) return "aarch64";
  if (triple.getArch() == llvm::Triple::riscv64) return "riscv64";
  check(triple.getArch() == llvm::Triple::x86_64, "weft.package: this machine ({}) is no target: name one",
        triple.str());
  const auto features = llvm::sys::getHostCPUFeatures();
  const auto has = [&](auto... names) { return (features.lookup(names) && ...); };
  if (!has("avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe")) return "x86-64";
  return has("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl") ? "x86-64-v4" : "x86-64-v3";
}

}  // namespace weft::packages
