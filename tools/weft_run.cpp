// weft-run: runs a program on random inputs and prints a summary of its outputs.
//
//   weft-run gru.weft --random 3 --dims T=4,B=2 --compare

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/batch_sizes.h"
#include "base/error.h"
#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/verifier.h"
#include "runtime/threads/team.h"

namespace {

using weft::interpreter::Array;

struct Options {
  std::string file;
  uint64_t seed = 0;
  std::vector<std::string> dims;
  bool interpreter = false;
  bool compare = false;
  bool plan = false, stages = false;
  bool values = false;
  int64_t threads = 0;
  int64_t repeat = 1;
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

/// Normally distributed for floating types, 0 or 1 for the others, so that they are valid indices nearly everywhere.
/// Batch sizes of packed sequences fit the sizes.
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
  auto ragged = batch_sizes_inputs(program);
  for (weft::ir::ValueId id : program.body.args) {
    const weft::ir::Type& type = program.type(id);
    std::vector<int64_t> sizes = weft::interpreter::sizes_of(type.shape, bindings);
    int64_t count = weft::interpreter::count_of(sizes);
    if (auto it = ragged.find(id); it != ragged.end()) {
      std::vector<int64_t> rows = weft::some_batch_sizes(count, evaluate(it->second.rows, bindings),
                                                         evaluate(it->second.packed, bindings), options.seed);
      inputs.push_back(Array::of(type.dtype, std::move(sizes), std::vector<double>(rows.begin(), rows.end())));
      continue;
    }
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
  std::cout << fmt::format("{} {}[{}]: sum {:.6g}, sum of squares {:.6g}\n",
                           name.empty() ? std::to_string(i) : "%" + name, weft::name_of(output.dtype),
                           fmt::join(output.sizes, ","), sum, squares);
  if (all) std::cout << fmt::format("  {:.9g}\n", fmt::join(values, " "));
}

weft::ir::Bindings bind(const weft::ir::Program& program, const std::vector<Array>& inputs) {
  std::vector<std::vector<int64_t>> sizes;
  for (const Array& input : inputs) sizes.push_back(input.sizes);
  return weft::ir::bind(program, sizes);
}

template <typename Action>
double milliseconds(Action action) {
  auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Runs machine code `repeat` times; the compile time and the shortest run go to the standard error.
std::vector<Array> run_engine(const std::string& text, const std::vector<Array>& inputs, const Options& options) {
  std::shared_ptr<const weft::engine::Executable> executable;
  double compile = milliseconds([&] { executable = weft::engine::compile(text); });
  const weft::ir::Program& program = executable->program();
  weft::ir::Bindings bindings = bind(program, inputs);
  if (options.plan) std::cout << executable->plan(bindings);
  if (options.stages) std::cout << executable->plan_text();
  std::vector<Array> outputs;
  for (weft::ir::ValueId id : program.body.results)
    outputs.emplace_back(program.type(id).dtype, weft::interpreter::sizes_of(program.type(id).shape, bindings));
  std::vector<weft::runtime::TensorRef> from;
  for (const Array& input : inputs)  // inputs are only read
    from.push_back({const_cast<std::byte*>(input.bytes.data()), input.dtype, input.sizes});
  std::vector<weft::runtime::TensorRef> to;
  for (Array& output : outputs) to.push_back({output.bytes.data(), output.dtype, output.sizes});
  double best = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < options.repeat; ++i) {
    for (const weft::ir::Donation& donation : program.donations) {  // gives up a copy of the input, the same each time
      std::ranges::copy(inputs[donation.input].bytes, outputs[donation.result].bytes.begin());
      from[donation.input].data = outputs[donation.result].bytes.data();
    }
    best = std::min(best, milliseconds([&] { executable->run(from, to, weft::runtime::own_team(options.threads)); }));
  }
  std::cerr << fmt::format("compiled in {:.1f} ms, ran in {:.3f} ms\n", compile, best);
  for (const auto& [reason, count] : weft::engine::stats().fallbacks)
    std::cerr << fmt::format("not machine code: {} ({} times)\n", reason, count);
  return outputs;
}

std::vector<Array> run_interpreter(const weft::ir::Program& program, const std::vector<Array>& inputs) {
  std::vector<Array> outputs;
  double time = milliseconds([&] { outputs = weft::interpreter::evaluate(program, inputs); });
  std::cerr << fmt::format("interpreted in {:.3f} ms\n", time);
  return outputs;
}

/// The largest difference, relative to the larger of 1 and the magnitude; infinite where only one side is NaN.
double largest_difference(const Array& a, const Array& b) {
  std::vector<double> x = a.to_doubles();
  std::vector<double> y = b.to_doubles();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    double difference = std::abs(x[i] - y[i]) / std::max(1.0, std::abs(y[i]));
    worst = std::max(worst, std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference);
  }
  return worst;
}

void run(const Options& options) {
  std::string text = read_text(options.file);
  weft::ir::Program program = weft::ir::parse(text);
  std::vector<Array> inputs = random_inputs(program, options);
  std::vector<Array> outputs =
      options.interpreter ? run_interpreter(program, inputs) : run_engine(text, inputs, options);
  for (size_t i = 0; i < outputs.size(); ++i) print_output(program, i, outputs[i], options.values);
  if (!options.compare) return;
  std::vector<Array> expected = run_interpreter(program, inputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    std::cout << fmt::format("largest difference from the interpreter in {}: {:.3g}\n", i,
                             largest_difference(outputs[i], expected[i]));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Runs a Weft program on random inputs; prints a line an output.");
  app.add_option("file", options.file, "the program's file; - is the standard input")->required();
  app.add_option("--random", options.seed, "seed of the random inputs");
  app.add_option("--dims", options.dims, "sizes of the symbols, as T=4,B=2")->delimiter(',')->allow_extra_args(false);
  app.add_flag("--interpreter", options.interpreter, "run the interpreter, not machine code");
  app.add_flag("--compare", options.compare, "run the interpreter too and print the largest differences");
  app.add_flag("--plan", options.plan, "print the plan of buffers for these sizes");
  app.add_flag("--stages", options.stages, "print the whole plan: buffers, stages and what they call");
  app.add_option("--threads", options.threads, "threads of machine code; 0 takes the cores");
  app.add_option("--repeat", options.repeat, "runs of machine code, of which the shortest is told");
  app.add_flag("--values", options.values, "print all elements too");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::bad_alloc&) {
    std::cerr << "weft-run: " << options.file << ": out of memory\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "weft-run: " << options.file << ": " << error.what() << '\n';
    return 1;
  }
  return std::cout.flush() ? 0 : 1;
}
