#include "passes/pass_runner.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "base/settings.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"

namespace weft::passes {
namespace {

using Clock = std::chrono::steady_clock;

bool is_disabled(std::string_view name) {
  const auto& disabled = settings().disabled;
  return std::find(disabled.begin(), disabled.end(), name) != disabled.end();
}

/// Verifies after a pass. A program that a pass has broken is an internal error, though the verifier throws the user's.
void verify_after(const ir::Program& program, std::string_view pass) {
  try {
    ir::verify(program);
  } catch (const Error& error) {
    internal_error("after the pass '{}': {}\n{}", pass, error.what(), ir::print(program));
  }
}

void run_timed(std::string_view name, const ir::Program& program, const std::function<void()>& step) {
  const Clock::time_point start = Clock::now();
  step();
  if (!settings().time_passes) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  fmt::print(stderr, "weft: {:>9.1f} us  {} of @{}\n", seconds * 1e6, name, program.name);
}

}  // namespace

PassRunner::PassRunner(ir::Program& program) : program_(program) {
  if (settings().dump.empty()) return;
  const size_t hash = std::hash<std::string>{}(ir::print(program, true));
  folder_ = std::filesystem::path(settings().dump) / fmt::format("{}-{:08x}", program.name, hash & 0xffffffffu);
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  check(!error, "WEFT_DUMP: cannot make the folder '{}': {}", folder_.string(), error.message());
  write("input", ir::print(program));
}

/// Writes `<dump>/<program>-<hash>/NN-pass.weft` if it differs from what was written before: 00-input comes first.
void PassRunner::write(std::string_view name, std::string text) {
  if (text == text_) return;
  text_ = std::move(text);
  std::ofstream(folder_ / fmt::format("{:02}-{}.weft", count_, name)) << text_;
}

void PassRunner::run(std::span<const std::string_view> names) {
  for (std::string_view name : names) run(std::span(&find_pass(name), 1));
}

void PassRunner::run(std::span<const Pass> passes) {
  for (const Pass& pass : passes) {
    ++count_;
    if (is_disabled(pass.name)) continue;
    run_timed(pass.name, program_, [&] { pass.run(program_); });
    if (settings().verify) verify_after(program_, pass.name);
    if (!folder_.empty()) write(pass.name, ir::print(program_));
  }
}

void PassRunner::run_step(std::string_view name, const std::function<void()>& step,
                          const std::function<std::string()>& text) {
  ++count_;
  run_timed(name, program_, step);
  if (settings().verify) verify_after(program_, name);
  if (!folder_.empty()) write(name, text());
}

void run_passes(ir::Program& program, std::span<const std::string_view> names) { PassRunner(program).run(names); }

}  // namespace weft::passes
