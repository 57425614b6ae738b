// weft-opt: reads a program as text, runs passes on it and prints it. Used by tests and for bug reports.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "op_table.h"
#include "passes/pass_runner.h"
#include "planning/cpu/cpu_target.h"
#include "planning/schedule_text.h"
#include "streaming/streaming.h"

namespace {

struct Options {
  std::vector<std::string> passes;
  std::vector<std::string> stream;
  int64_t delay = 0;
  bool lower = false;
  bool verify_each = false;
  bool list_passes = false;
  bool list_ops = false;
  bool canonical = false;
  std::string file;
};

std::string read_text(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream stream(file, std::ios::binary);
  weft::check(stream.good(), "cannot read '{}'", file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The pass of this name, for this CPU's target or for all targets.
const weft::passes::Pass& find_pass(const weft::planning::Target& target, std::string_view name) {
  for (const weft::passes::Pass& pass : target.layout_passes())
    if (pass.name == name) return pass;
  return weft::passes::find_pass(name);
}

void list_passes(const weft::planning::Target& target) {
  const std::span<const weft::passes::Pass> all = weft::passes::all_passes();
  for (const weft::passes::Pass& pass : all) std::cout << pass.name << '\n';
  for (const weft::passes::Pass& pass : target.layout_passes())
    if (std::ranges::find(all, pass.name, &weft::passes::Pass::name) == all.end()) std::cout << pass.name << '\n';
}

void write_port(std::string_view what, const weft::streaming::Port& port) {
  std::cout << "// " << what;
  if (port.time_dim) {
    std::cout << ": " << port.per_chunk << " along dim " << *port.time_dim;
    if (port.lag != 0) std::cout << ", lag " << port.lag;
  } else {
    std::cout << ": no time";
  }
  std::cout << '\n';
}

void write_streamed(const weft::ir::Program& program, const Options& options) {
  std::vector<std::optional<size_t>> dims;
  for (const std::string& dim : options.stream) {
    const bool is_number =
        !dim.empty() && dim.size() < 4 && std::ranges::all_of(dim, [](char c) { return c >= '0' && c <= '9'; });
    weft::check(dim == "-" || is_number, "--stream takes numbers of dims, or -, but got '{}'", dim);
    dims.push_back(is_number ? std::optional<size_t>(std::stoul(dim)) : std::nullopt);
  }
  const weft::streaming::Streamed streamed = weft::streaming::stream(program, dims, options.delay);
  for (const auto& port : streamed.inputs) write_port("input", port);
  for (const auto& port : streamed.outputs) write_port("output", port);
  for (const std::string& state : streamed.states) std::cout << "// state " << state << '\n';
  for (const auto& constant : streamed.constants)
    std::cout << "// constant: " << (constant.is_weight ? "weight " : "result of start ") << constant.number << '\n';
  std::cout << weft::ir::print(streamed.step, options.canonical) << weft::ir::print(streamed.start, options.canonical);
}

void run(const Options& options) {
  const weft::planning::CpuTarget target;
  if (options.list_passes) return list_passes(target);
  if (options.list_ops) {
    std::cout << weft::tools::op_table();
    return;
  }
  if (options.verify_each) weft::mutable_settings().verify = true;
  weft::ir::Program program = weft::ir::parse(read_text(options.file));
  weft::passes::PassRunner runner(program);
  for (const std::string& name : options.passes) runner.run(std::span(&find_pass(target, name), 1));
  if (!options.stream.empty()) return write_streamed(program, options);
  if (!options.lower) {
    std::cout << weft::ir::print(program, options.canonical);
    return;
  }
  std::cout << write_lowered(weft::planning::lower(program, target));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Reads a Weft program, runs passes on it and prints it.");
  app.add_option("--passes", options.passes, "passes to run, in order, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--stream", options.stream,
                 "print the model over time as a step: for each input the dim of its time, or - where it has none")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--delay", options.delay, "how many steps results of --stream may lag");
  app.add_flag("--lower", options.lower, "show the stages into which this CPU's code is divided, as comments");
  app.add_flag("--verify-each", options.verify_each, "verify the program after every pass");
  app.add_flag("--list-passes", options.list_passes, "print the names of all passes and stop");
  app.add_flag("--list-ops", options.list_ops, "print the op table, columns separated by tabs, and stop");
  app.add_flag("--canonical", options.canonical, "print numbers in place of names");
  app.add_option("file", options.file, "the program's file; - is the standard input");
  CLI11_PARSE(app, argc, argv);
  if (options.file.empty() && !options.list_passes && !options.list_ops) {
    std::cerr << "weft-opt: a file is needed, or - for the standard input\n";
    return 2;
  }
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "weft-opt: " << (options.file.empty() ? "" : options.file + ": ") << error.what() << '\n';
    return 1;
  }
  return std::cout.flush() ? 0 : 1;
}
