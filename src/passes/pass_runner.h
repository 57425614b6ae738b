#pragma once

#include <filesystem>
#include <functional>
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

/// Every pass that suits all targets (pipeline.cpp). User's error "no pass named 'x'; there are ..." for another name.
std::span<const Pass> all_passes();
const Pass& find_pass(std::string_view name);

/// Runs passes in order: each is skipped when WEFT_DISABLE names it, timed, verified after (WEFT_VERIFY) and, with
/// WEFT_DUMP, its result is written if it changed.
class PassRunner {
 public:
  /// With WEFT_DUMP, writes the program as it is.
  explicit PassRunner(ir::Program& program);

  void run(std::span<const Pass> passes);
  void run(std::span<const std::string_view> names);

  /// Runs a step that is no pass, since its result is more than a program. The step is timed and verified; with
  /// WEFT_DUMP, text() is written.
  void run_step(std::string_view name, const std::function<void()>& step, const std::function<std::string()>& text);

 private:
  void write(std::string_view name, std::string text);

  ir::Program& program_;
  std::filesystem::path folder_;  ///< of the dump; empty without
  std::string text_;              ///< the text written last
  size_t count_ = 0;              ///< passes and steps so far
};

/// Runs these passes with a PassRunner of their own.
void run_passes(ir::Program& program, std::span<const std::string_view> names);

/// The passes between a parsed program and a target's own passes, in order; pipeline.cpp says why each stands where it
/// stands.
std::span<const std::string_view> compile_pipeline();

}  // namespace weft::passes
