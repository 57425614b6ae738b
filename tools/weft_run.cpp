// weft-run: runs a program on random inputs and prints a summary of its outputs.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "interpreter/interpreter.h"
#include "ir/parser.h"

namespace {

using weft::interpreter::Array;

struct Options {
  std::string file;
  uint64_t seed = 0;
  std::vector<std::string> dims;
  bool interpreter = false;
  bool values = false;
};

std::string read_text(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream stream(file, std::ios::binary);
  weft::check(stream.good(), "cannot read '{}'", file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// `T=4` for every symbol.
weft::ir::Bindings parse_dims(const std::vector<std::string>& dims) {
  weft::ir::Bindings bindings;
  for (const std::string& dim : dims) {
    size_t equals = dim.find('=');
    std::string number = equals == std::string::npos ? "" : dim.substr(equals + 1);
    weft::check(!number.empty() && number.size() < 19 && number.find_first_not_of("0123456789") == std::string::npos,
                "--dims: expected a symbol and its size, as T=4, but found '{}'", dim);
    bindings[dim.substr(0, equals)] = std::stoll(number);
  }
  return bindings;
}

/// Normal for floating types, 0 or 1 for the others, so that they are valid indices nearly everywhere.
std::vector<double> random_values(weft::DType dtype, int64_t count, std::mt19937_64& generator) {
  std::normal_distribution<double> normal(0, 0.5);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = weft::is_floating(dtype) ? normal(generator) : double(generator() % 2);
  return values;
}

std::vector<Array> random_inputs(const weft::ir::Program& program, const Options& options) {
  weft::ir::Bindings bindings = parse_dims(options.dims);
  std::mt19937_64 generator(options.seed);
  std::vector<Array> inputs;
  for (weft::ir::ValueId id : program.body.args) {
    const weft::ir::Type& type = program.type(id);
    std::vector<int64_t> sizes = weft::interpreter::sizes_of(type.shape, bindings);
    int64_t count = weft::interpreter::count_of(sizes);
    inputs.push_back(Array::of(type.dtype, std::move(sizes), random_values(type.dtype, count, generator)));
  }
  return inputs;
}

void print_output(const weft::ir::Program& program, size_t i, const Array& output, bool all) {
  std::vector<double> values = output.to_doubles();
  double sum = 0;
  double squares = 0;
  for (double value : values) {
    sum += value;
    squares += value * value;
  }
  const std::string& name = program.values[program.body.results[i]].name;
  std::cout << fmt::format("{} {}[{}]: sum {:.6g}, sum of squares {:.6g}\n", name.empty() ? std::to_string(i) : "%" + name,
                           weft::name_of(output.dtype), fmt::join(output.sizes, ","), sum, squares);
  if (all) std::cout << fmt::format("  {:.9g}\n", fmt::join(values, " "));
}

void run(const Options& options) {
  weft::ir::Program program = weft::ir::parse(read_text(options.file));
  std::vector<Array> inputs = random_inputs(program, options);
  auto start = std::chrono::steady_clock::now();
  std::vector<Array> outputs = weft::interpreter::evaluate(program, inputs);
  std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  for (size_t i = 0; i < outputs.size(); ++i) print_output(program, i, outputs[i], options.values);
  std::cerr << fmt::format("{:.3f} ms\n", elapsed.count());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Runs a Weft program on random inputs; prints a line an output.");
  app.add_option("file", options.file, "the program's file; - is the standard input")->required();
  app.add_option("--random", options.seed, "seed of the random inputs");
  app.add_option("--dims", options.dims, "sizes of the symbols, as T=4,B=2")->delimiter(',')->allow_extra_args(false);
  app.add_flag("--interpreter", options.interpreter, "run the interpreter, not machine code");
  app.add_flag("--values", options.values, "print all elements too");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "weft-run: " << options.file << ": " << error.what() << '\n';
    return 1;
  }
  return std::cout.flush() ? 0 : 1;
}
