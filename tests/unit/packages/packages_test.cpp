// Random programs as packages, with some inputs as weights and some as states, against the interpreter.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "interpreter/interpreter.h"
#include "ir/builder.h"
#include "ir/inline.h"
#include "ir/text/printer.h"
#include "packages/package.h"
#include "random_program.h"
#include "resident/step.h"

namespace weft::packages_test {
namespace {

using interpreter::Array;
using packages::StepModel;

/// The program with its arguments in the order of a step: inputs of which a result has the type are states (two at
/// most), every second of the others is a weight. All results are outputs too.
struct Case {
  StepModel model;
  std::vector<Array> inputs;
};

Case case_of(const ir::Program& program, const std::vector<Array>& inputs) {
  Case made;
  std::vector<std::pair<size_t, size_t>> states;  // input and result
  const ir::Block& body = program.body;
  for (size_t j = 0; j < body.results.size() && states.size() < 2; ++j)
    for (size_t i = 0; i < body.args.size(); ++i) {
      const bool taken = std::ranges::any_of(states, [&](auto pair) { return pair.first == i; });
      if (taken || program.type(body.args[i]) != program.type(body.results[j])) continue;
      states.emplace_back(i, j);
      break;
    }
  std::vector<size_t> order, weights;
  for (auto [input, result] : states) order.push_back(input);
  for (size_t i = 0; i < body.args.size(); ++i)
    if (std::ranges::find(order, i) == order.end()) (i % 2 == 0 ? weights : order).push_back(i);
  const size_t given = order.size();
  order.insert(order.end(), weights.begin(), weights.end());
  ir::Program step;
  ir::Builder builder(step, step.body);
  std::vector<ir::ValueId> arguments(body.args.size());
  for (size_t i : order)
    arguments[i] = builder.input({inputs[i].dtype, {inputs[i].sizes.begin(), inputs[i].sizes.end()}});
  const std::vector<ir::ValueId> results = ir::inline_program(builder, program, arguments);
  std::vector<ir::ValueId> all;
  for (auto [input, result] : states) all.push_back(results[result]);
  all.insert(all.end(), results.begin(), results.end());
  builder.ret(all);
  made.model.name = "random";
  for (size_t k = 0; k < order.size(); ++k) {
    const Array& array = inputs[order[k]];
    if (k < states.size()) {
      made.model.states.push_back(array);
    } else if (k < given) {
      made.inputs.push_back(array);
      made.model.inputs.push_back(step.type(step.body.args[k]));
    } else {
      made.model.weights.push_back(array);
    }
  }
  made.model.state_names.resize(states.size());
  made.model.input_names.resize(made.inputs.size());
  made.model.output_names.resize(results.size());
  made.model.program = std::move(step);
  return made;
}

/// A package that was linked by the system's linker and loaded.
class Library {
 public:
  explicit Library(const std::string& object) {
    const auto folder = std::filesystem::temp_directory_path() / ("weft_packages_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const std::string path = (folder / std::to_string(count++)).string();
    std::ofstream(path + ".o", std::ios::binary) << object;
    EXPECT_EQ(std::system(("ld -shared -o " + path + ".so " + path + ".o").c_str()), 0);
    handle_ = dlopen((path + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle_, nullptr) << dlerror();
    std::filesystem::remove_all(folder);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { dlclose(handle_); }

  const resident::Model& model() const {
    return *reinterpret_cast<const resident::Model* (*)()>(dlsym(handle_, "random_model"))();
  }

 private:
  static inline int count = 0;
  void* handle_;
};

double difference(const Array& a, const Array& b) {
  const std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) != std::isnan(y[i])) return 1e9;
    if (!std::isnan(x[i]) && x[i] != y[i]) most = std::max(most, std::abs(x[i] - y[i]) / std::max(1.0, std::abs(y[i])));
  }
  return most;
}

/// Three steps beside the interpreter's; false if the program can't be packaged.
bool agrees(const ir::Program& program, const ir::Bindings& sizes, uint64_t seed, const std::string& target) {
  const Case made = case_of(program, testing::random_inputs(program, sizes, seed));
  packages::Object object;
  try {
    object = packages::compile(made.model, packages::find_target(target));
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("weft.package: "), std::string::npos) << error.what();
    return false;
  }
  const Library library(object.bytes);
  const resident::Model& model = library.model();
  void* state = std::aligned_alloc(model.state_align, model.state_bytes);
  EXPECT_EQ(model.reset(state), 0);
  std::vector<Array> states = made.model.states;
  for (int step = 0; step < 3; ++step) {
    std::vector<Array> all = states;
    all.insert(all.end(), made.inputs.begin(), made.inputs.end());
    all.insert(all.end(), made.model.weights.begin(), made.model.weights.end());
    const std::vector<Array> expected = interpreter::evaluate(made.model.program, all);
    std::vector<Array> found;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const Array& input : made.inputs) inputs.push_back(input.bytes.data());
    for (size_t i = states.size(); i < expected.size(); ++i) found.emplace_back(expected[i].dtype, expected[i].sizes);
    for (Array& output : found) outputs.push_back(output.bytes.data());
    EXPECT_EQ(model.step(state, inputs.data(), outputs.data()), 0);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_LE(difference(found[i], expected[states.size() + i]), 2e-3)
          << "seed " << seed << ", step " << step << ", result " << i << ", " << target << "\n"
          << ir::print(made.model.program);
    for (size_t i = 0; i < states.size(); ++i) states[i] = expected[i];
  }
  std::free(state);
  return true;
}

TEST(Packages, RandomProgramsAgreeWithTheInterpreter) {
  const std::string host(packages::host_target());
  if (!host.starts_with("x86-64")) GTEST_SKIP() << "programs are linked for x86-64 here";
  std::vector<std::string> targets{"x86-64"};
  if (host != "x86-64") targets.emplace_back("x86-64-v3");
  if (host == "x86-64-v4") targets.push_back(host);
  const ir::Bindings sizes[] = {{{"T", 3}, {"B", 2}}, {{"T", 1}, {"B", 1}}, {{"T", 2}, {"B", 5}}, {{"T", 0}, {"B", 3}}};
  const char* wanted = std::getenv("WEFT_RANDOM_STEPS");
  const uint64_t count = wanted ? std::strtoull(wanted, nullptr, 10) * 4 : 60;
  uint64_t packaged = 0;
  for (uint64_t seed = 0; seed < count && !HasFailure(); ++seed) {
    const ir::Program program = testing::random_program(
        seed, {.ops = 10, .scan_depth = seed % 3 == 0 ? 1 : 0, .mixed = seed % 2 == 1, .loops = false});
    packaged += agrees(program, sizes[seed % 4], seed, targets[seed % targets.size()]) ? 1 : 0;
  }
  EXPECT_GE(packaged, count / 2);
}

}  // namespace
}  // namespace weft::packages_test
