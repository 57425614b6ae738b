#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program.h"

namespace weft::passes {

struct Pass {
  std::string_view name;
  void (*run)(ir::Program& program);
};

/// Every pass there is (pipeline.cpp). User's error "no pass named 'x'; there are ..." for another name.
std::span<const Pass> all_passes();
const Pass& find_pass(std::string_view name);

/// Runs passes in order: each is skipped when WEFT_DISABLE names it, timed, verified after (WEFT_VERIFY) and, with
/// WEFT_DUMP, its result is written if it changed.
void run_passes(ir::Program& program, std::span<const std::string_view> names);

/// The passes between a parsed program and code generation, in order; pipeline.cpp says why each stands where it
/// stands.
std::span<const std::string_view> compile_pipeline();

}  // namespace weft::passes
