// Products of so many steps that a panel is a large part of the core's own cache: blocks of rows go over it in parts.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/settings.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "lowered.h"
#include "machine.h"
#include "native_run.h"
#include "random_program.h"
#include "runtime/plan/run.h"

namespace weft::deep_products_test {
namespace {

/// An odd depth, at which a product by 20 columns, in two units of f32, has a panel that is too large for a private
/// cache of this size.
constexpr int64_t deep(int64_t private_cache) { return private_cache / 4 / (2 * target::kUnit) + 77; }

/// One product of all rows, and one in each step of a loop. `weights`: f32 or bf16. Sums are scaled. Otherwise a
/// rounding error of the first step would be hundreds of times larger after the second; the deeper the products, the
/// larger.
std::string program_of(const std::string& weights, int64_t depth) {
  const std::string k = std::to_string(depth), cast = weights == "f32" ? "copy" : "cast";
  return "program @p(%h0: f32[B," + k + "], %x: f32[T,B," + k + "], %w: " + weights + "[20," + k +
         "]) {\n  %wf = " + cast + " %w : f32[20," + k + R"(]
  %y = matmul %x, %wf {transpose_b = true} : f32[T,B,20]
  %z = sin %y : f32[T,B,20]
  %scale = constant {value = 0.01} : f32[]
  %scales = broadcast %scale {dims = []} : f32[B,20]
  %hT, %ys = scan length 2 carry(%h = %h0) xs() {
    %p = matmul %h, %wf {transpose_b = true} : f32[B,20]
    %r = mul %p, %scales : f32[B,20]
    %s = sin %r : f32[B,20]
    %q = matmul %s, %wf : f32[B,)" +
         k + R"(]
    %n = sin %q : f32[B,)" +
         k + R"(]
    yield carry(%n) ys(%s)
  } : f32[B,)" +
         k + R"(], f32[2,B,20]
  return %z, %ys
})";
}

class DeepProducts : public ::testing::TestWithParam<const char*> {
 protected:
  DeepProducts() {
    mutable_settings().pack = "always";
    mutable_settings().private_cache_bytes = kPrivateCache;
  }
  ~DeepProducts() override {
    mutable_settings().pack.clear();
    mutable_settings().share_all = false;
    mutable_settings().private_cache_bytes = private_cache_;
  }

  static constexpr int64_t kPrivateCache = 512 << 10;

 private:
  int64_t private_cache_ = settings().private_cache_bytes;
};

TEST_P(DeepProducts, GoOverPanelsInParts) {
  auto most_rows = [](const planning::BlockSchedule& block) {
    return std::ranges::max(block.stages, {}, &planning::Stage::tile_rows).tile_rows;
  };
  testing::on_each_machine([&](const testing::Machine& machine) {
    const testing::Lowered lowered(program_of(GetParam(), 2 * deep(machine.private_cache())));
    EXPECT_GE(most_rows(lowered.schedule.body), 90);
    EXPECT_GE(most_rows(lowered.schedule.scans.begin()->second.block), 90);
  });
}

TEST_P(DeepProducts, GiveARowTheSameBitsOnAnyThreadsBesideAnyRows) {
  const std::string text = program_of(GetParam(), 2 * deep(kPrivateCache));
  const ir::Program program = ir::parse(text);
  std::vector<std::vector<double>> first(2);  // row 0 of each result
  for (const int64_t batch : {1, 5, 13, 101}) {
    const ir::Bindings bindings{{"T", 1}, {"B", batch}};
    std::vector<interpreter::Array> inputs = testing::random_inputs(program, bindings, 3);
    const std::vector<interpreter::Array> one = testing::random_inputs(program, {{"T", 1}, {"B", 1}}, 5);
    for (size_t i = 0; i < 2; ++i) std::ranges::copy(one[i].bytes, inputs[i].bytes.begin());
    inputs[2] = one[2];
    const std::vector<interpreter::Array> expected = interpreter::evaluate(program, inputs);
    for (const int64_t threads : {1, 3}) {
      mutable_settings().share_all = threads > 1;
      const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(threads));
      for (size_t i = 0; i < found.size(); ++i) {
        const std::vector<double> x = found[i].to_doubles(), y = expected[i].to_doubles();
        // Sines of sums of thousands of products, in two steps.
        for (size_t j = 0; j < y.size(); ++j) ASSERT_NEAR(x[j], y[j], 0.002) << batch << " rows, result " << i;
        const std::vector<double> row(x.begin(), x.begin() + 20);
        if (first[i].empty()) first[i] = row;
        ASSERT_EQ(row, first[i]) << batch << " rows, " << threads << " threads, result " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeepProducts, ::testing::Values("f32", "bf16"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace weft::deep_products_test
