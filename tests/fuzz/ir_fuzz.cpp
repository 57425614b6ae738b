// Arbitrary bytes either are refused with a line and a column, or are a program that prints and parses losslessly and
// that the passes keep valid.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "mutate.h"
#include "passes/differentiation/vjp.h"
#include "passes/pass_runner.h"

namespace {

/// Ends the process, which libFuzzer takes for a finding.
[[noreturn]] void report(const char* what, const std::string& detail) {
  std::fprintf(stderr, "%s:\n%s\n", what, detail.c_str());
  std::abort();
}

bool parses(std::string_view text, weft::ir::Program& program) {
  try {
    program = weft::ir::parse(text);
    return true;
  } catch (const weft::Error& error) {
    if (std::string_view(error.what()).substr(0, 5) != "line ") report("an error without a line", error.what());
    return false;
  }
}

void check_round_trip(const weft::ir::Program& program) {
  for (bool canonical : {false, true}) {
    std::string text = weft::ir::print(program, canonical);
    weft::ir::Program again;
    if (!parses(text, again)) report("does not parse after printing", text);
    std::string second = weft::ir::print(again, canonical);
    if (second != text) report("prints otherwise after parsing", text + second);
  }
}

/// Runs `action`. It may fail only where a size overflows once all steps are done at once, or where there is no
/// derivative: both are still the user's mistake.
template <typename Action>
void must_succeed(std::string_view what, const std::string& before, Action action) {
  try {
    action();
  } catch (const weft::Error& error) {
    std::string_view message = error.what();
    for (std::string_view allowed : {"overflows 64 bits", "outside 0..2^62", "is too large", "dims; at most",
                                     "has no gradients", "extern: ", "line "})
      if (message.find(allowed) != message.npos) return;
    report("a pass made a program invalid", fmt::format("{}: {}\n{}", what, error.what(), before));
  } catch (const std::exception& error) {
    report("a pass failed", fmt::format("{}: {}\n{}", what, error.what(), before));
  }
}

void check_passes(weft::ir::Program program) {
  std::string before = weft::ir::print(program);
  std::vector<std::string_view> names = {"roll", "symbolic_lengths"};
  std::ranges::copy(weft::passes::compile_pipeline(), std::back_inserter(names));
  for (std::string_view name : names)
    must_succeed(name, before, [&] {
      weft::passes::run_passes(program, {&name, 1});
      weft::ir::verify(program);
    });
  check_round_trip(program);
}

void check_derivative(const weft::ir::Program& program) {
  std::vector<bool> wanted;
  for (weft::ir::ValueId input : program.body.args) wanted.push_back(weft::is_floating(program.type(input).dtype));
  must_succeed("vjp", weft::ir::print(program), [&] {
    weft::passes::Vjp vjp = weft::passes::vjp(program, wanted);
    weft::ir::verify(vjp.forward);
    weft::ir::verify(vjp.backward);
    weft::ir::verify(weft::passes::vjp_of_primals(program, wanted));
  });
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

/// Half of the mutations are of tokens and lines: changes of bytes alone hardly ever make another valid program.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text = weft::fuzz::mutate({reinterpret_cast<const char*>(data), size}, seed / 2);
  if (text.empty() || text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::ir::Program program;
  if (!parses({reinterpret_cast<const char*>(data), size}, program)) return 0;
  check_round_trip(program);
  check_derivative(program);
  check_passes(std::move(program));
  return 0;
}
