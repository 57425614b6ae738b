// Each pass keeps the results of random programs, up to rounding.

#include "base/settings.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "passes/differentiation/vjp.h"
#include "passes/pass_runner.h"
#include "programs.h"
#include "random_program.h"

namespace weft::passes_test {
namespace {

using testing::Arrays;
using Names = std::vector<std::string_view>;

/// Passes before prepack; the interpreter can't judge the passes after.
Names tidy_pipeline() { return {passes::compile_pipeline().begin(), passes::compile_pipeline().end()}; }

void check_unchanged(ir::Program program, const Names& names, const ir::Bindings& bindings, uint64_t seed,
                     double tolerance) {
  SCOPED_TRACE(ir::print(program));
  Arrays inputs = testing::random_inputs(program, bindings, seed);
  Arrays expected = interpreter::evaluate(program, inputs);
  passes::run_passes(program, names);
  SCOPED_TRACE(ir::print(program));
  ASSERT_NO_THROW(ir::verify(program));
  EXPECT_LE(testing::difference(interpreter::evaluate(program, inputs), expected), tolerance);
}

struct PassCase {
  std::string name;
  Names passes;
};

class EachPass : public ::testing::TestWithParam<PassCase> {
 protected:
  void SetUp() override { mutable_settings().verify = true; }
};

TEST_P(EachPass, LeavesRandomProgramsAsTheyAre) {
  testing::RandomOptions options;
  options.dtype = DType::kF64;
  options.mixed = false;
  options.scan_depth = 2;
  options.ops = 10;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    check_unchanged(testing::random_program(seed, options), GetParam().passes,
                    {{"T", static_cast<int64_t>(seed % 4)}, {"B", 3}}, seed, 1e-9);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST_P(EachPass, LeavesRandomRaggedProgramsAsTheyAre) {
  testing::RandomOptions options;
  options.dtype = DType::kF64;
  options.mixed = false;
  options.ops = 9;
  options.ragged = true;
  const std::vector<ir::Bindings> sizes = {
      {{"T", 4}, {"B", 3}, {"N", 8}}, {{"T", 0}, {"B", 2}, {"N", 0}}, {{"T", 5}, {"B", 4}, {"N", 11}}};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    options.row_wise = seed % 2;
    ir::Program program = testing::random_program(seed, options);
    if (seed % 4 == 0) program = passes::vjp_of_primals(program, testing::floating_inputs(program));
    check_unchanged(program, GetParam().passes, sizes[seed % 3], seed, 1e-9);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST_P(EachPass, LeavesDerivativesAsTheyAre) {
  testing::RandomOptions options;
  options.dtype = DType::kF64;
  options.mixed = false;
  options.ops = 7;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    ir::Program program = testing::random_program(seed + 1000, options);
    program = passes::vjp_of_primals(program, testing::floating_inputs(program));
    check_unchanged(program, GetParam().passes, {{"T", static_cast<int64_t>(seed % 4)}, {"B", 2}}, seed, 1e-9);
    if (::testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EachPass,
    ::testing::Values(PassCase{"canonicalise", {"canonicalise"}}, PassCase{"cse", {"cse"}}, PassCase{"dce", {"dce"}},
                      PassCase{"hoist", {"hoist"}}, PassCase{"split_carries", {"split_carries"}},
                      PassCase{"reassociate", {"reassociate"}}, PassCase{"push_slices", {"push_slices"}},
                      PassCase{"sink", {"sink"}}, PassCase{"merge_stacks", {"sink", "merge_stacks"}},
                      PassCase{"hoist_sink", {"hoist", "sink"}},
                      PassCase{"sink_hoist", {"sink", "hoist", "canonicalise"}},
                      PassCase{"drop_derivatives", {"drop_derivatives"}}, PassCase{"pipeline", tidy_pipeline()}),
    [](const auto& info) { return info.param.name; });

/// Passes that move and compare nothing but whole ops give the same bits, whatever the types.
TEST(ExactPasses, LeaveMixedTypesAsTheyAre) {
  testing::RandomOptions options;
  options.scan_depth = 2;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    check_unchanged(testing::random_program(seed, options), {"drop_derivatives", "cse", "dce"}, {{"T", 3}, {"B", 2}},
                    seed, 0);
    ASSERT_NO_THROW({
      ir::Program program = testing::random_program(seed, options);
      passes::run_passes(program, tidy_pipeline());
    });
    if (::testing::Test::HasFailure()) return;
  }
}

/// A constant's element is its number rounded to its type, before anything is computed with it.
TEST(Canonicalise, FoldsWhatTheTypesHold) {
  for (const char* type : {"f16", "bf16", "f32", "f64", "bool", "i32"}) {
    bool is_number = std::string_view(type) != "bool" && std::string_view(type) != "i32";
    ir::Program program = ir::parse(fmt::format(
        "program @p() {{ %a = constant {{value = {0}}} : {1}[2]  %b = cast %a : f64[2]  %c = cast %b : f32[2]\n"
        "%d = constant {{value = 3.3}} : f32[2]  %e = div %c, %d : f32[2]  %f = lt %c, %e : bool[2]  %g = cast %a : "
        "f32[2]\n"
        "return %b, %e, %f, %g }}",
        is_number ? "0.1" : "1", type));
    check_unchanged(program, {"canonicalise", "cse", "dce"}, {}, 1, 0);
  }
}

TEST(Runner, SkipsWhatIsDisabled) {
  ir::Program program = ir::parse("program @p(%x: f32[B]) { %d = tanh %x : f32[B] return %x }");
  mutable_settings().disabled = {"dce"};
  passes::run_passes(program, Names{"dce"});
  mutable_settings().disabled = {};
  EXPECT_EQ(program.body.ops.size(), 1u);
  passes::run_passes(program, Names{"dce"});
  EXPECT_EQ(program.body.ops.size(), 0u);
}

TEST(Runner, NamesThePassesThereAre) {
  EXPECT_EQ(
      testing::error_of([] { passes::find_pass("fold"); }),
      "no pass named 'fold'; there are canonicalise, cse, dce, vjp, promote_sums, split_carries, reassociate, hoist, "
      "push_slices, sink, merge_stacks, drop_derivatives, roll, symbolic_lengths");
}

}  // namespace
}  // namespace weft::passes_test
