// hoist, reassociate and sink on programs made for their cases: ops that must leave the loop leave it, and results
// stay.

#include <algorithm>

#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "lowered.h"
#include "passes/pass_runner.h"
#include "programs.h"
#include "random_program.h"

namespace weft::loop_passes_test {
namespace {

using testing::Arrays;

struct LoopCase {
  std::string name;
  std::vector<std::string_view> passes;
  std::string inputs;                   ///< beside %x: f64[T,B,3], %i: i64[T,B] and %h: f64[B,3]
  std::string carries;                  ///< beside %c = %h
  std::string step;                     ///< from %xt, %it, %c; ends with its yield
  std::string types;                    ///< of the results beside f64[B,3]
  int results;                          ///< beside the first carry
  std::vector<ir::OpCode> outside;      ///< ops that must no longer be in the region
  std::vector<ir::OpCode> inside = {};  ///< ops that must still be there
};

std::string text_of(const LoopCase& c) {
  std::string results;
  for (int i = 0; i < c.results; ++i) results += fmt::format(", %r{}", i);
  return fmt::format(
      "program @p(%x: f64[T,B,3], %i: i64[T,B], %h: f64[B,3], %w: f64[3,3]{}) {{\n"
      "  %hT{} = scan length T carry(%c = %h{}) xs(%xt = %x, %it = %i) {{\n{}\n  }} : f64[B,3]{}\n  return %hT{}\n}}",
      c.inputs, results, c.carries, c.step, c.types, results);
}

bool holds(const ir::Block& block, ir::OpCode code) {
  return std::ranges::any_of(block.ops, [&](const ir::Op& op) {
    return op.code == code || std::ranges::any_of(op.regions, [&](const ir::Block& b) { return holds(b, code); });
  });
}

class LoopPass : public ::testing::TestWithParam<LoopCase> {};

TEST_P(LoopPass, MovesWhatItShouldAndKeepsResults) {
  const LoopCase& c = GetParam();
  for (bool reverse : {false, true}) {
    std::string text = text_of(c);
    if (reverse) text.replace(text.find("scan length"), 11, "scan reverse length");
    ir::Program program = ir::parse(text);
    ir::Program moved = program;
    passes::run_passes(moved, c.passes);
    SCOPED_TRACE(ir::print(moved));
    ir::verify(moved);
    for (const ir::Op& op : moved.body.ops) {
      if (op.code != ir::OpCode::kScan) continue;
      for (ir::OpCode code : c.outside) EXPECT_FALSE(holds(op.regions[0], code)) << ir::info(code).name;
    }
    const auto scan = std::ranges::find(moved.body.ops, ir::OpCode::kScan, &ir::Op::code);
    for (ir::OpCode code : c.inside)
      EXPECT_TRUE(scan != moved.body.ops.end() && holds(scan->regions[0], code)) << ir::info(code).name;
    for (int64_t t : {0, 1, 4}) {
      Arrays inputs = testing::random_inputs(program, {{"T", t}, {"B", 2}}, 3);
      EXPECT_LT(testing::difference(interpreter::evaluate(moved, inputs), interpreter::evaluate(program, inputs)),
                1e-12)
          << "T = " << t;
    }
  }
}

/// A step that adds %v: f64[B,3] to the carry.
std::string adding(const std::string& ops) {
  return ops + "\n    %a = add %c, %v : f64[B,3]\n    %n = tanh %a : f64[B,3]\n    yield carry(%n) ys()";
}

std::vector<LoopCase> hoist_cases() {
  using ir::OpCode;
  std::vector<LoopCase> cases;
  auto add = [&](const char* name, const std::string& ops, std::vector<OpCode> outside) {
    cases.push_back(
        {std::string("hoist_") + name, {"hoist"}, ", %tw: f64[4,5]", "", adding(ops), "", 0, std::move(outside)});
  };
  add("matmul_of_rows", "%v = matmul %xt, %w : f64[B,3]", {OpCode::kMatmul});
  add("matmul_with_weights_of_the_step", "%m = outer %xt, %xt : f64[3,3]  %v = matmul %xt, %m : f64[B,3]",
      {OpCode::kMatmul, OpCode::kOuter});
  add("matmul_of_a_captured_value_with_weights_of_the_step",
      "%m = outer %xt, %xt : f64[3,3]  %v = matmul %h, %m {transpose_b = true} : f64[B,3]", {OpCode::kMatmul});
  add("matmul_of_a_vector",
      "%s = reduce_sum %xt {dims = [0]} : f64[3]  %m = outer %xt, %xt : f64[3,3]"
      "  %p = matmul %s, %m : f64[3]  %v = broadcast %p {dims = [1]} : f64[B,3]",
      {OpCode::kMatmul, OpCode::kReduceSum});
  add("matmul_of_three_dims",
      "%b = broadcast %xt {dims = [1, 2]} : f64[2,B,3]  %m = outer %xt, %xt : f64[3,3]"
      "  %p = matmul %b, %m : f64[2,B,3]  %v = reduce_max %p {dims = [0]} : f64[B,3]",
      {OpCode::kMatmul, OpCode::kReduceMax});
  add("outer_of_vectors",
      "%s = reduce_sum %xt {dims = [0]} : f64[3]  %o = outer %s, %s : f64[3,3]"
      "  %p = reduce_sum %o {dims = [0]} : f64[3]  %v = broadcast %p {dims = [1]} : f64[B,3]",
      {OpCode::kOuter, OpCode::kReduceSum});
  add("gather", "%e = gather %w, %it : f64[B,3]  %v = matmul %e, %w : f64[B,3]", {OpCode::kGather, OpCode::kMatmul});
  add("gather_from_a_constant", "%k = constant {value = 2} : f64[2,3]  %v = gather %k, %it : f64[B,3]",
      {OpCode::kGather});
  add("movement_in_front_of_a_product",
      "%t = transpose %xt {perm = [1, 0]} : f64[3,B]  %u = transpose %t {perm = [1, 0]} : f64[B,3]"
      "  %r = reverse %u {dim = 1} : f64[B,3]  %s = slice %r {dim = 1, start = 1, limit = 3} : f64[B,2]"
      "  %d = pad %s {dim = 1, low = 1, high = 0} : f64[B,3]  %q = reshape %d : f64[3*B]  %q2 = reshape %q : f64[B,3]"
      "  %j = concat %q2, %s {dim = 1} : f64[B,5]  %v = matmul %j, %big : f64[B,3]",
      {OpCode::kMatmul, OpCode::kReverse, OpCode::kConcat, OpCode::kPad});
  cases.back().inputs = ", %big: f64[5,3]";
  add("what_depends_on_nothing",
      "%g = tanh %w : f64[3,3]  %o = iota {dim = 1} : f64[B,3]  %z = sin %o : f64[B,3]"
      "  %p = matmul %c, %g : f64[B,3]  %v = mul %p, %z : f64[B,3]",
      {OpCode::kSin, OpCode::kIota});
  add("a_whole_scan",
      "%q, %qs = scan length 3 carry(%d = %w) xs(%e = %w) {\n"
      "  %b = broadcast %e {dims = [1]} : f64[3,3]  %m = matmul %d, %b : f64[3,3]\n"
      "  yield carry(%m) ys(%e) } : f64[3,3], f64[3,3]\n  %v = matmul %xt, %q : f64[B,3]",
      {OpCode::kScan});
  // A stack of outer products of long vectors would take too much memory.
  add("not_what_grows",
      "%s = reduce_sum %xt {dims = [0]} : f64[3]  %l = broadcast %s {dims = [0]} : f64[3,90]"
      "  %q = reshape %l : f64[270]  %o = outer %q, %q : f64[270,270]  %r = reduce_max %o {dims = [1]} : f64[270]"
      "  %t = slice %r {dim = 0, start = 0, limit = 3} : f64[3]  %v = broadcast %t {dims = [1]} : f64[B,3]",
      {OpCode::kReduceSum});
  cases.back().inside = {OpCode::kOuter};
  // A table of the step's own can't be indexed for all steps at once.
  add("not_a_table_of_the_step", "%m = outer %xt, %xt : f64[3,3]  %v = gather %m, %it : f64[B,3]", {OpCode::kOuter});
  cases.back().inside = {OpCode::kGather};
  add("not_a_scan_on_xs",
      "%q = scan length 3 carry(%d = %xt) xs(%e = %w) {\n  %b = broadcast %e {dims = [1]} : f64[B,3]"
      "  %m = mul %d, %b : f64[B,3]\n  yield carry(%m) ys() } : f64[B,3]\n  %v = neg %q : f64[B,3]",
      {});
  cases.back().inside = {OpCode::kScan};
  cases.push_back({"separate_joined_operands",
                   {"reassociate", "hoist"},
                   ", %big: f64[9,3]",
                   "",
                   adding("%j = concat %xt, %c, %xt {dim = 1} : f64[B,9]  %v = matmul %j, %big : f64[B,3]"),
                   "",
                   0,
                   {}});
  cases.push_back({"separate_sums",
                   {"reassociate", "hoist"},
                   "",
                   "",
                   adding("%p = matmul %xt, %w : f64[B,3]  %q = matmul %c, %w : f64[B,3]  %s = add %q, %p : f64[B,3]"
                          "  %b = broadcast %h {dims = [0, 1]} : f64[B,3]  %u = add %s, %b : f64[B,3]"
                          "  %e = sin %c : f64[B,3]  %v = add %e, %u : f64[B,3]"),
                   "",
                   0,
                   {}});
  return cases;
}

/// A step with a second carry %s of `type`, which becomes %s2, and one y.
LoopCase sum_case(const char* name, const std::string& type, const std::string& ops, std::vector<ir::OpCode> outside) {
  return {std::string("sink_sum_") + name,
          {"sink"},
          ", %s0: " + type,
          ", %s = %s0",
          "%a = add %c, %xt : f64[B,3]  %n = tanh %a : f64[B,3]\n" + ops + "\n yield carry(%n, %s2) ys(%n)",
          ", " + type + ", f64[T,B,3]",
          2,
          std::move(outside)};
}

std::vector<LoopCase> sink_cases() {
  using ir::OpCode;
  const std::string square = " : f64[3,3]", row = " : f64[3]";
  return {
      sum_case("of_products", "f64[3,3]", "%o = outer %n, %xt" + square + "  %s2 = add %s, %o" + square,
               {OpCode::kOuter}),
      sum_case("less_products", "f64[3,3]", "%o = outer %n, %xt" + square + "  %s2 = sub %s, %o" + square,
               {OpCode::kOuter}),
      sum_case("of_two_products", "f64[3,3]",
               "%o = outer %n, %xt" + square + "  %p = outer %xt, %n" + square + "  %q = sub %o, %p" + square +
                   "  %t = add %q, %s" + square + "  %s2 = sub %t, %p" + square,
               {OpCode::kOuter}),
      sum_case("of_moved_products", "f64[9]",
               "%o = outer %n, %xt" + square + "  %t = transpose %o {perm = [1, 0]}" + square + "  %u = neg %t" +
                   square +
                   "  %v = reshape %u : f64[9]  %r = reverse %v {dim = 0} : f64[9]"
                   "  %s2 = add %r, %s : f64[9]",
               {OpCode::kOuter, OpCode::kTranspose, OpCode::kReverse}),
      sum_case("over_rows", "f64[3]", "%r = reduce_sum %n {dims = [0]}" + row + "  %s2 = add %r, %s" + row,
               {OpCode::kReduceSum}),
      sum_case("of_padded_sums", "f64[5]",
               "%r = reduce_sum %n {dims = [0]}" + row +
                   "  %p = pad %r {dim = 0, low = 2, high = 0} : f64[5]  %s2 = add %s, %p : f64[5]",
               {OpCode::kReduceSum, OpCode::kPad}),
      sum_case("of_joined_sums", "f64[6]",
               "%m = mul %n, %xt : f64[B,3]  %r = reduce_sum %n {dims = [0]}" + row +
                   "  %q = reduce_sum %m {dims = [0]}" + row +
                   "  %j = concat %r, %q {dim = 0} : f64[6]  %s2 = add %s, %j : f64[6]",
               {OpCode::kReduceSum}),
      sum_case("of_projections", "f64[B,3]", "%p = matmul %n, %w : f64[B,3]  %s2 = add %s, %p : f64[B,3]",
               {OpCode::kMatmul}),
      sum_case("of_products_of_a_function", "f64[B,3]",
               "%p = matmul %n, %w : f64[B,3]  %e = sin %p : f64[B,3]  %s2 = add %s, %e : f64[B,3]",
               {OpCode::kMatmul, OpCode::kSin}),
      sum_case("of_ys", "f64[B,3]", "%s2 = add %n, %s : f64[B,3]", {}),
      sum_case("of_ones", "i64[]", "%k = constant {value = 1} : i64[]  %s2 = add %s, %k : i64[]", {}),
      // These are no sums: the carry is read, doubled, or subtracted from.
      sum_case("not_when_read", "f64[3]",
               "%r = reduce_sum %n {dims = [0]}" + row + "  %s2 = add %r, %s" + row + "  %z = tanh %s" + row, {}),
      sum_case("not_when_doubled", "f64[3]", "%s2 = add %s, %s" + row, {}),
      sum_case("not_when_subtracted", "f64[3]", "%r = reduce_sum %n {dims = [0]}" + row + "  %s2 = sub %r, %s" + row,
               {}),
      {"sink_products_of_ys",
       {"sink"},
       ", %b: f64[3]",
       "",
       "%a = add %c, %xt : f64[B,3]  %n = tanh %a : f64[B,3]  %p = matmul %n, %w : f64[B,3]"
       "  %bb = broadcast %b {dims = [1]} : f64[B,3]  %q = add %p, %bb : f64[B,3]  %g = mul %q, %a : f64[B,3]"
       "  yield carry(%n) ys(%g, %a, %p)",
       ", f64[T,B,3], f64[T,B,3], f64[T,B,3]",
       3,
       {OpCode::kMatmul}},
      {"sink_parts_of_what_is_joined",
       {"sink"},
       ", %big: f64[6,3], %s0: f64[3,3]",
       ", %s = %s0",
       "%a = add %c, %xt : f64[B,3]  %n = tanh %a : f64[B,3]  %j = concat %a, %n {dim = 1} : f64[B,6]"
       "  %p = matmul %j, %big : f64[B,3]  %m = sin %p : f64[B,3]  %o = outer %n, %a : f64[3,3]  %s2 = add %s, %o : "
       "f64[3,3]"
       "  yield carry(%m, %s2) ys(%j)",
       ", f64[3,3], f64[T,B,6]",
       2,
       {OpCode::kOuter}},
  };
}

std::vector<LoopCase> split_cases() {
  using ir::OpCode;
  const std::string halves =
      "%l = slice %c {dim = 1, start = 0, limit = 1} : f64[B,1]  %r = slice %c {dim = 1, start = 1, limit = 3} : "
      "f64[B,2]"
      "  %n1 = tanh %l : f64[B,1]  %n2 = sin %r : f64[B,2]  ";
  return {
      {"split_two_parts",
       {"split_carries", "dce"},
       "",
       "",
       halves + "%n = concat %n1, %n2 {dim = 1} : f64[B,3]\n    yield carry(%n) ys()",
       "",
       0,
       {OpCode::kConcat, OpCode::kSlice}},
      {"split_parts_of_parts",
       {"split_carries", "dce"},
       "",
       "",
       "%m = slice %c {dim = 1, start = 2, limit = 3} : f64[B,1]  %o = broadcast %m {dims = [0, 1]} : f64[B,1]  " +
           halves + "%s = add %n1, %o : f64[B,1]  %n = concat %s, %n2 {dim = 1} : f64[B,3]\n    yield carry(%n) ys()",
       "",
       0,
       {OpCode::kConcat},
       {OpCode::kSlice}},
      {"split_what_is_stacked_too",
       {"split_carries", "dce"},
       "",
       "",
       halves + "%n = concat %n1, %n2 {dim = 1} : f64[B,3]\n    yield carry(%n) ys(%n)",
       ", f64[T,B,3]",
       1,
       {OpCode::kSlice},
       {OpCode::kConcat}},
      {"split_parts_that_cross",
       {"split_carries", "dce"},
       "",
       "",
       halves + "%n = concat %n2, %n1 {dim = 1} : f64[B,3]\n    yield carry(%n) ys()",
       "",
       0,
       {},
       {OpCode::kConcat, OpCode::kSlice}}};
}

std::string name_of_case(const ::testing::TestParamInfo<LoopCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Hoist, LoopPass, ::testing::ValuesIn(hoist_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(SplitCarries, LoopPass, ::testing::ValuesIn(split_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Sink, LoopPass, ::testing::ValuesIn(sink_cases()), name_of_case);

/// Chains as long as a captured program may be: no pass may recurse along them, or take quadratic time.
TEST(LongChains, ExhaustNeitherStackNorPatience) {
  constexpr int kOps = 20000;
  std::string ops;
  for (int i = 0; i < kOps; ++i)
    ops += fmt::format("%v{} = {} : f64[B]\n", i + 1,
                       i % 3 == 0   ? fmt::format("sin %v{}", i)
                       : i % 3 == 1 ? fmt::format("add %v{}, %v0", i)
                                    : fmt::format("mul %v{0}, %v{0}", i));
  ir::Program plain = ir::parse("program @p(%v0: f64[B]) {\n" + ops + fmt::format("return %v{} }}", kOps));
  ir::Program loop = ir::parse(
      "program @p(%h: f64[B], %x: f64[T,B]) { %r, %y = scan length T carry(%v0 = %h) xs(%s = %x) {\n" + ops +
      fmt::format("%n = add %v{}, %s : f64[B] yield carry(%n) ys(%n) }} : f64[B], f64[T,B] return %r, %y }}", kOps));
  for (const ir::Program& program : {plain, loop}) {
    passes::Vjp vjp = passes::vjp(program, testing::floating_inputs(program));
    EXPECT_GT(vjp.backward.body.ops.size(), 0u);
    for (ir::Program* each : {&vjp.forward, &vjp.backward}) testing::Lowered(std::move(*each), planning::CpuTarget());
  }
}

}  // namespace
}  // namespace weft::loop_passes_test
