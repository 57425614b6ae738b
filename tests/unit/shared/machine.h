#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "base/settings.h"
#include "runtime/kernels/kernels.h"

namespace weft::testing {

/// The facts about a machine that choices know. A test of a choice names a machine, or holds on each of kMachines: its
/// expectation should not depend on where it runs.
struct Machine {
  const char* name;
  runtime::Isa isa;
  const char* core;                             ///< as in WEFT_CORE
  int64_t private_kilobytes, shared_kilobytes;  ///< of its caches

  constexpr int64_t private_cache() const { return private_kilobytes << 10; }
  constexpr int64_t shared_cache() const { return shared_kilobytes << 10; }
};

/// Each with the L3 that one core sees.
inline constexpr Machine kMachines[] = {
    {"no AVX", runtime::Isa::kGeneric, "intel", 256, 8 << 10},
    {"small Xeon", runtime::Isa::kAvx2, "intel", 256, 20 << 10},
    {"laptop", runtime::Isa::kAvx2, "intel", 1280, 12 << 10},
    {"Zen 1", runtime::Isa::kAvx2, "zen1", 512, 8 << 10},
    {"Zen 3", runtime::Isa::kAvx2, "other", 512, 32 << 10},
    {"Xeon", runtime::Isa::kAvx512, "intel", 1 << 10, 33 << 10},
    {"large Xeon", runtime::Isa::kAvx512, "intel", 2 << 10, 105 << 10},
    {"Zen 5", runtime::Isa::kAvx512, "zen5", 1 << 10, 32 << 10},
};

/// While it lives, the engine makes choices for this machine, not for the one on which the test runs. Afterwards all
/// settings are as before.
class TakenFor {
 public:
  explicit TakenFor(const Machine& machine) {
    Settings& all = mutable_settings();
    all.isa = name_of(machine.isa);
    all.core = machine.core;
    all.private_cache_bytes = machine.private_cache();
    all.shared_cache_bytes = machine.shared_cache();
  }
  ~TakenFor() { mutable_settings() = before_; }
  TakenFor(const TakenFor&) = delete;
  TakenFor& operator=(const TakenFor&) = delete;

 private:
  Settings before_ = settings();
};

/// Calls body(machine) for each of kMachines, with choices made for it. Machines with instructions that this CPU lacks
/// are left out: here nothing can be lowered for them.
template <typename Body>
void on_each_machine(const Body& body) {
  for (const Machine& machine : kMachines) {
    if (!runtime::supports(machine.isa)) continue;
    const TakenFor taken(machine);
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, machine.name);
    body(machine);
  }
}

}  // namespace weft::testing
