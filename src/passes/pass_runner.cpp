#include "passes/pass_runner.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/settings.h"
#include "ir/printer.h"
#include "ir/verifier.h"

namespace weft::passes {
namespace {

using Clock = std::chrono::steady_clock;

/// Writes `<dump>/<program>-<hash>/NN-pass.weft`: 00-input, then each pass that changed something.
class Dump {
 public:
  explicit Dump(const ir::Program& program) {
    if (settings().dump.empty()) return;
    text_ = ir::print(program);
    size_t hash = std::hash<std::string>{}(ir::print(program, true));
    folder_ = std::filesystem::path(settings().dump) / fmt::format("{}-{:08x}", program.name, hash & 0xffffffffu);
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    check(!error, "WEFT_DUMP: cannot make the folder '{}': {}", folder_.string(), error.message());
    write(0, "input");
  }

  void after(size_t number, std::string_view pass, const ir::Program& program) {
    if (folder_.empty()) return;
    std::string text = ir::print(program);
    if (text == text_) return;
    text_ = std::move(text);
    write(number, pass);
  }

 private:
  void write(size_t number, std::string_view pass) const {
    std::ofstream(folder_ / fmt::format("{:02}-{}.weft", number, pass)) << text_;
  }

  std::filesystem::path folder_;
  std::string text_;
};

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

}  // namespace

void run_passes(ir::Program& program, std::span<const std::string_view> names) {
  Dump dump(program);
  for (size_t i = 0; i < names.size(); ++i) {
    const Pass& pass = find_pass(names[i]);
    if (is_disabled(pass.name)) continue;
    Clock::time_point start = Clock::now();
    pass.run(program);
    if (settings().time_passes) {
      double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      fmt::print(stderr, "weft: {:>9.1f} us  {} of @{}\n", seconds * 1e6, pass.name, program.name);
    }
    if (settings().verify) verify_after(program, pass.name);
    dump.after(i + 1, pass.name, program);
  }
}

}  // namespace weft::passes
