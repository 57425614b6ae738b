// Machine code against the interpreter on random programs, of sizes that include none, one and odd ones.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/settings.h"
#include "interpreter/interpreter.h"
#include "ir/text/printer.h"
#include "native_run.h"
#include "passes/differentiation/vjp.h"
#include "programs.h"
#include "random_program.h"
#include "runtime/threads/team.h"

namespace weft::engine_random_test {
namespace {

using interpreter::Array;

/// The largest difference, relative to the largest magnitude or 1; NaN and infinities must agree.
double largest_difference(const Array& a, const Array& b) {
  std::vector<double> x = a.to_doubles();
  std::vector<double> y = b.to_doubles();
  double scale = 1;
  for (double value : y)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    double difference = std::abs(x[i] - y[i]) / scale;
    worst = std::max(worst, std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity());
  }
  return worst;
}

struct Setting {
  const char* name;
  DType dtype;
  bool mixed;
  int depth;
  double tolerance;
};

class EngineRandom : public ::testing::TestWithParam<Setting> {};

/// Sizes that include none, one and odd ones.
const std::vector<ir::Bindings>& dense_bindings() {
  static const std::vector<ir::Bindings> all = {
      {{"T", 3}, {"B", 2}}, {{"T", 0}, {"B", 3}}, {{"T", 5}, {"B", 1}}, {{"T", 2}, {"B", 0}}, {{"T", 1}, {"B", 7}}};
  return all;
}

void compare(const ir::Program& program, uint64_t seed, double tolerance,
             const std::vector<ir::Bindings>& sizes = dense_bindings()) {
  for (const ir::Bindings& bindings : sizes) {
    std::vector<Array> inputs = testing::random_inputs(program, bindings, seed);
    std::vector<Array> expected = interpreter::evaluate(program, inputs);
    // Runs as it is called and, for some sizes, with little work shared among threads all the same.
    for (bool share_all : {false, true}) {
      if (share_all && (&bindings - sizes.data() + static_cast<int64_t>(seed)) % 4 != 0) continue;
      std::vector<Array> found;
      mutable_settings().share_all = share_all;
      mutable_settings().pack = std::array{"", "always", "never", "way"}[seed % 4];
      mutable_settings().window = static_cast<int64_t>(seed / 4 % 4) - 1;
      EXPECT_NO_THROW(found =
                          testing::run_native(ir::print(program), inputs, bindings,
                                              runtime::own_team(share_all ? 2 + static_cast<int64_t>(seed % 2) : 0)))
          << "seed " << seed << "\n"
          << ir::print(program);
      mutable_settings().share_all = false;
      mutable_settings().pack.clear();
      mutable_settings().window = -1;
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_LE(largest_difference(found[i], expected[i]), tolerance)
            << "seed " << seed << ", result " << i << ", T = " << bindings.at("T") << ", B = " << bindings.at("B")
            << (share_all ? ", shared\n" : "\n") << ir::print(program);
    }
  }
}

TEST_P(EngineRandom, AgreesWithTheInterpreter) {
  const Setting& setting = GetParam();
  for (uint64_t seed = 0; seed < 60 && !HasFatalFailure(); ++seed)
    compare(testing::random_program(
                seed, {.ops = 10, .scan_depth = setting.depth, .mixed = setting.mixed, .dtype = setting.dtype}),
            seed, setting.tolerance);
}

TEST_P(EngineRandom, GradientsAgreeWithTheInterpreter) {
  const Setting& setting = GetParam();
  for (uint64_t seed = 100; seed < 130 && !HasFatalFailure(); ++seed) {
    ir::Program program = testing::random_program(
        seed, {.ops = 8, .scan_depth = setting.depth, .mixed = setting.mixed, .loops = false, .dtype = setting.dtype});
    std::vector<bool> wanted;
    for (ir::ValueId input : program.body.args) wanted.push_back(is_floating(program.type(input).dtype));
    compare(passes::vjp_of_primals(program, wanted), seed, setting.tolerance);
  }
}

/// Batch sizes of packed sequences: as many rows as there can be, as few, and between.
const std::vector<ir::Bindings>& ragged_bindings() {
  static const std::vector<ir::Bindings> all = {{{"T", 3}, {"B", 2}, {"N", 5}},   {{"T", 0}, {"B", 3}, {"N", 0}},
                                                {{"T", 5}, {"B", 1}, {"N", 5}},   {{"T", 1}, {"B", 7}, {"N", 7}},
                                                {{"T", 4}, {"B", 3}, {"N", 12}},  {{"T", 6}, {"B", 5}, {"N", 10}},
                                                {{"T", 9}, {"B", 40}, {"N", 207}}};
  return all;
}

class EngineRandomRagged : public ::testing::TestWithParam<Setting> {
 protected:
  static testing::RandomOptions options(bool row_wise, bool loops = true) {
    const Setting& setting = GetParam();
    return {.ops = 9,
            .scan_depth = setting.depth,
            .mixed = setting.mixed,
            .ragged = true,
            .row_wise = row_wise,
            .loops = loops,
            .dtype = setting.dtype};
  }
};

TEST_P(EngineRandomRagged, AgreesWithTheInterpreter) {
  for (uint64_t seed = 0; seed < 60 && !HasFatalFailure(); ++seed)
    compare(testing::random_program(seed, options(seed % 3 != 0)), seed, GetParam().tolerance, ragged_bindings());
}

TEST_P(EngineRandomRagged, GradientsAgreeWithTheInterpreter) {
  for (uint64_t seed = 100; seed < 140 && !HasFatalFailure(); ++seed) {
    ir::Program program = testing::random_program(seed, options(seed % 3 != 0, /*loops=*/false));
    std::vector<bool> wanted;
    for (ir::ValueId input : program.body.args) wanted.push_back(is_floating(program.type(input).dtype));
    compare(passes::vjp_of_primals(program, wanted), seed, GetParam().tolerance, ragged_bindings());
  }
}

INSTANTIATE_TEST_SUITE_P(All, EngineRandomRagged,
                         ::testing::Values(Setting{"f64", DType::kF64, false, 1, 1e-9},
                                           Setting{"f32", DType::kF32, false, 1, 1e-3},
                                           Setting{"bf16", DType::kBF16, false, 1, 5e-2},
                                           Setting{"mixed", DType::kF64, true, 1, 2e-2}),
                         [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(
    All, EngineRandom,
    ::testing::Values(Setting{"f64", DType::kF64, false, 1, 1e-9}, Setting{"f32", DType::kF32, false, 1, 1e-3},
                      Setting{"nested", DType::kF64, false, 2, 1e-9}, Setting{"deep", DType::kF32, true, 3, 2e-2},
                      Setting{"mixed", DType::kF64, true, 1, 2e-2}, Setting{"f16", DType::kF16, false, 1, 1e-2},
                      Setting{"bf16", DType::kBF16, false, 1, 5e-2},
                      Setting{"mixed_bf16", DType::kBF16, true, 1, 5e-2}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft::engine_random_test
