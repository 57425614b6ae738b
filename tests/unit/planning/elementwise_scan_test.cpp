// Scans whose carries stay in registers where they are few: which scans may, and that the results are the same.

#include "planning/loops/elementwise_scan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/settings.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "lowered.h"
#include "native_run.h"
#include "random_program.h"

namespace weft::elementwise_scan_test {
namespace {

struct Program {
  const char* name;
  bool elementwise;  ///< the first scan
  const char* text;
};

const Program kPrograms[] = {
    {"two_carries", true, R"(program @p(%a0: f32[B,C], %b0: f32[B,C], %x: f32[T,B,C], %p: f32[], %q: f32[C]) {
       %a, %b, %ys = scan length T carry(%s = %a0, %u = %b0) xs(%v = %x) {
         %k = broadcast %p {dims = []} : f32[B,C]
         %l = broadcast %q {dims = [1]} : f32[B,C]
         %m = mul %k, %v : f32[B,C]
         %y = add %m, %s : f32[B,C]
         %n = mul %l, %y : f32[B,C]
         %z = tanh %n : f32[B,C]
         %r = add %z, %u : f32[B,C]
         %e = sub %v, %y : f32[B,C]
         yield carry(%r, %e) ys(%y)
       } : f32[B,C], f32[B,C], f32[T,B,C]
       return %ys, %a, %b })"},
    {"backwards_and_swapped", true, R"(program @p(%a0: f32[C], %b0: f32[C], %x: f32[T,C]) {
       %a, %b, %ys, %zs = scan reverse length T carry(%s = %a0, %u = %b0) xs(%v = %x) {
         %r = mul %s, %v : f32[C]
         yield carry(%u, %r) ys(%r, %s)
       } : f32[C], f32[C], f32[T,C], f32[T,C]
       return %a, %b, %ys, %zs })"},
    {"a_carry_that_is_its_x", true, R"(program @p(%a0: f32[B,C], %x: f32[T,B,C]) {
       %a, %ys = scan length T carry(%s = %a0) xs(%v = %x) {
         %r = mul %s, %v : f32[B,C]
         yield carry(%v) ys(%r)
       } : f32[B,C], f32[T,B,C]
       return %a, %ys })"},
    {"without_ys", true, R"(program @p(%a0: f64[B,C], %x: f64[T,B,C]) {
       %a = scan length T carry(%s = %a0) xs(%v = %x) {
         %r = maximum %s, %v : f64[B,C]
         yield carry(%r) ys()
       } : f64[B,C]
       return %a })"},
    {"of_16_bits", true, R"(program @p(%a0: bf16[B,C], %x: bf16[T,B,C]) {
       %a, %ys = scan length T carry(%s = %a0) xs(%v = %x) {
         %m = mul %s, %v : bf16[B,C]
         %r = add %m, %v : bf16[B,C]
         yield carry(%r) ys(%r)
       } : bf16[B,C], bf16[T,B,C]
       return %a, %ys })"},
    {"numbers_that_count", true, R"(program @p(%a0: i64[C], %x: bool[T,C]) {
       %a, %ys = scan length T carry(%s = %a0) xs(%v = %x) {
         %n = cast %v : i64[C]
         %r = add %s, %n : i64[C]
         yield carry(%r) ys(%r)
       } : i64[C], i64[T,C]
       return %a, %ys })"},
    {"several_dims", true, R"(program @p(%a0: f32[B,3,C], %x: f32[T,B,3,C]) {
       %a, %ys = scan length T carry(%s = %a0) xs(%v = %x) {
         %m = mul %s, %v : f32[B,3,C]
         %r = tanh %m : f32[B,3,C]
         yield carry(%r) ys(%m)
       } : f32[B,3,C], f32[T,B,3,C]
       return %a, %ys })"},
    {"a_part_of_an_x", true, R"(program @p(%a0: f32[B,20], %x: f32[T,B,40]) {
       %a, %ys = scan length T carry(%s = %a0) xs(%v = %x) {
         %f = slice %v {dim = 1, limit = 20, start = 0} : f32[B,20]
         %g = slice %v {dim = 1, limit = 40, start = 20} : f32[B,20]
         %m = mul %s, %f : f32[B,20]
         %r = add %m, %g : f32[B,20]
         yield carry(%r) ys(%r)
       } : f32[B,20], f32[T,B,20]
       return %a, %ys })"},
    {"halves_of_a_carry_are_two", true, R"(program @p(%a0: f32[B,20], %x: f32[T,B,10]) {
       %a, %ys = scan length T carry(%s = %a0) xs(%v = %x) {
         %f = slice %s {dim = 1, limit = 10, start = 0} : f32[B,10]
         %g = slice %s {dim = 1, limit = 20, start = 10} : f32[B,10]
         %m = mul %g, %v : f32[B,10]
         %n = add %m, %f : f32[B,10]
         %r = concat %m, %n {dim = 1} : f32[B,20]
         yield carry(%r) ys(%n)
       } : f32[B,20], f32[T,B,10]
       return %a, %ys })"},
    {"a_carry_for_all_rows", false, R"(program @p(%a0: f32[C], %x: f32[T,3,C]) {
       %a, %ys = scan length T carry(%s = %a0) xs(%v = %x) {
         %w = broadcast %s {dims = [1]} : f32[3,C]
         %m = mul %w, %v : f32[3,C]
         %r = tanh %s : f32[C]
         yield carry(%r) ys(%m)
       } : f32[C], f32[T,3,C]
       return %a, %ys })"},
    {"a_sum", false, R"(program @p(%a0: f32[B,C], %x: f32[T,B,C]) {
       %a, %ys = scan length T carry(%s = %a0) xs(%v = %x) {
         %m = mul %s, %v : f32[B,C]
         %n = reduce_sum %m {dims = [1]} : f32[B]
         yield carry(%m) ys(%n)
       } : f32[B,C], f32[T,B]
       return %a, %ys })"},
};

class ElementwiseScan : public ::testing::TestWithParam<Program> {
 protected:
  ~ElementwiseScan() override {
    mutable_settings().share_all = mutable_settings().guard = false;
    mutable_settings().window = -1;
  }
};

TEST_P(ElementwiseScan, IsOneWhoseStepsReadCarriesInPlace) {
  const testing::Lowered lowered(GetParam().text);
  ASSERT_FALSE(lowered.schedule.scans.empty());
  EXPECT_EQ(planning::is_elementwise_scan(lowered.schedule, *lowered.schedule.scans.begin()->first),
            GetParam().elementwise);
}

TEST_P(ElementwiseScan, GivesTheResultsOfTheInterpreter) {
  const ir::Program program = ir::parse(GetParam().text);
  for (const auto& [batch, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 2}, {1, 16}, {2, 17}, {3, 5}, {0, 3}, {3, 0}, {1, 70}, {9, 33}})
    for (int64_t length : {0, 1, 2, 7})
      for (int64_t threads : {1, 3}) {
        const ir::Bindings bindings{{"T", length}, {"B", batch}, {"C", columns}};
        const std::vector<interpreter::Array> inputs = testing::random_inputs(program, bindings, 3);
        mutable_settings().share_all = threads > 1;
        mutable_settings().guard = length == 7;
        const auto found = testing::run_native(GetParam().text, inputs, bindings, runtime::own_team(threads));
        EXPECT_LE(testing::difference(found, interpreter::evaluate(program, inputs)), 1e-5)
            << "T " << length << ", B " << batch << ", C " << columns << ", " << threads << " threads";
      }
}

INSTANTIATE_TEST_SUITE_P(All, ElementwiseScan, ::testing::ValuesIn(kPrograms),
                         [](const auto& test) { return test.param.name; });

/// A product before an elementwise scan runs within the scan, for some steps at a time. So the scan ends after these
/// steps, and goes on later.
TEST(ElementwiseScanInWindows, GoesOnWhereItEnded) {
  for (const std::string reverse : {"", "reverse "}) {
    const std::string text = R"(program @p(%h0: f32[B,20], %g0: f32[B,20], %x: f32[T,B,9], %v: f32[20,9]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,20]
       %h, %g, %ys = scan )" +
                             reverse + R"(length T carry(%s = %h0, %u = %g0) xs(%at = %a) {
         %m = mul %u, %at : f32[B,20]
         %n = tanh %m : f32[B,20]
         yield carry(%n, %s) ys(%m)
       } : f32[B,20], f32[B,20], f32[T,B,20]
       return %ys, %h, %g })";
    const ir::Program program = ir::parse(text);
    for (int64_t window : {1, 2, 3, 7}) {
      const ir::Bindings bindings{{"T", 7}, {"B", 2}};
      const std::vector<interpreter::Array> inputs = testing::random_inputs(program, bindings, 4);
      mutable_settings().window = window;
      const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(1));
      mutable_settings().window = -1;
      EXPECT_LE(testing::difference(found, interpreter::evaluate(program, inputs)), 1e-5) << window << reverse;
    }
  }
}

}  // namespace
}  // namespace weft::elementwise_scan_test
