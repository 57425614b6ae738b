// weft-opt: reads a program as text, runs passes on it and prints it. What tests and bug reports use.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "op_table.h"
#include "passes/pass_runner.h"
#include "planning/cpu/cpu_target.h"
#include "planning/schedule_text.h"

namespace {

struct Options {
  std::vector<std::string> passes;
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

/// The pass of this name, of this CPU's target or of all.
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
