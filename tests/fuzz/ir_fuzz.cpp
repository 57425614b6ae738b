// Arbitrary bytes either are refused with a line and a column, or are a program that prints and parses losslessly and
// that the passes keep valid.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "mutate.h"
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

void check_passes(weft::ir::Program program) {
  static constexpr std::string_view kPasses[] = {"canonicalise", "cse", "dce", "hoist", "sink", "canonicalise", "dce"};
  std::string before = weft::ir::print(program);
  for (std::string_view name : kPasses) {
    try {
      weft::passes::run_passes(program, {&name, 1});
      weft::ir::verify(program);
    } catch (const weft::Error& error) {
      // A size that overflows only once T steps are done at once is the user's mistake still.
      std::string_view message = error.what();
      if (message.find("overflows 64 bits") == message.npos && message.find("outside 0..2^62") == message.npos)
        report("a pass made a program invalid", std::string(name) + ": " + error.what() + "\n" + before);
    } catch (const std::exception& error) {
      report("a pass failed", std::string(name) + ": " + error.what() + "\n" + before);
    }
  }
  check_round_trip(program);
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

/// Half of the mutations are of tokens and lines: bytes alone hardly ever make another valid program.
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
  check_passes(std::move(program));
  return 0;
}
