// Annotations tell how a pass may treat an op; an op's result doesn't depend on them. A text with annotations is
// refused with its line, or runs as without them.

#include <algorithm>
#include <cmath>

#include "base/settings.h"
#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "lowered.h"
#include "native_run.h"
#include "passes/pass_runner.h"
#include "planning/schedule_text.h"
#include "programs.h"
#include "random_program.h"

namespace weft::annotations_test {
namespace {

using ir::OpClass;
using ir::OpCode;
using testing::error_of;

constexpr const char* kInputs =
    "%x: f32[4,B], %y: f32[4,B], %c: f32[2,6], %m: f32[6,32], %n: i64[4,B], %d: i64[4,B], %q: bool[4,B], %p: bool[], "
    "%i: i64[3], %u: f32[3,B], %a: f32[5,2,6], %b: f32[5,6,2]";

/// An op's text, with `#` where further attributes go, and the lines that define its operands.
struct Sample {
  std::string op;
  std::string before;
};

Sample region_sample(OpCode code) {
  if (code == OpCode::kScan)
    return {"scan length 4 {#} carry(%h = %u0) xs(%v = %x) { %w = add %h, %v yield carry(%w) ys(%w) }",
            "%zero = constant {value = 0} : f32[] %u0 = broadcast %zero {dims = []} : f32[B]"};
  if (code == OpCode::kCond) return {"cond %p {#} then { %t = neg %x yield %t } else { %e = copy %y yield %e }", ""};
  return {"while {#} carry(%h = %zero) { %go = lt %h, %one yield %go } do(%k) { %t = add %k, %one yield %t }",
          "%zero = constant {value = 0} : i64[] %one = constant {value = 3} : i64[]"};
}

Sample sample(OpCode code) {
  const std::string name(info(code).name);
  if (info(code).op_class == OpClass::kRegion) return region_sample(code);
  switch (code) {
    case OpCode::kConstant:
      return {"constant {value = 2, #} : f32[4,B]", ""};
    case OpCode::kIota:
      return {"iota {dim = 1, #} : i64[4,B]", ""};
    case OpCode::kSize:
      return {"size {of = dim(B), #} : i64[]", ""};
    case OpCode::kNot:
      return {"not %q {#}", ""};
    case OpCode::kAnd:
    case OpCode::kOr:
      return {name + " %q, %q {#}", ""};
    case OpCode::kCast:
      return {"cast %x {#} : i64[4,B]", ""};
    case OpCode::kDiv:
    case OpCode::kRem:
      return {name + " %n, %d {#}", ""};
    case OpCode::kSelect:
      return {"select %q, %x, %y {#}", ""};
    case OpCode::kBroadcast:
      return {"broadcast %p {dims = [], #} : bool[4,B]", ""};
    case OpCode::kReshape:
      return {"reshape %x {#} : f32[B,4]", ""};
    case OpCode::kTranspose:
      return {"transpose %x {perm = [1, 0], #}", ""};
    case OpCode::kSlice:
      return {"slice %x {dim = 0, start = 1, limit = 3, #}", ""};
    case OpCode::kPad:
      return {"pad %x {dim = 0, low = 1, high = 2, #}", ""};
    case OpCode::kConcat:
      return {"concat %c, %c {dim = 1, #}", ""};
    case OpCode::kReverse:
      return {"reverse %x {dim = 1, #}", ""};
    case OpCode::kGather:
      return {"gather %x, %i {#}", ""};
    case OpCode::kScatterAdd:
      return {"scatter_add %i, %u {#} : f32[4,B]", ""};
    case OpCode::kScatter:
      return {"scatter %x, %i, %u {#}", ""};
    case OpCode::kDynamicSlice:
      return {"dynamic_slice %x, %s {dim = 0, size = 2, #}", "%s = constant {value = 1} : i64[]"};
    case OpCode::kDynamicUpdate:
      return {"dynamic_update %x, %u, %s {dim = 0, #}", "%s = constant {value = 1} : i64[]"};
    case OpCode::kReduceSum:
    case OpCode::kReduceMax:
      return {name + " %x {dims = [0], #}", ""};
    case OpCode::kMatmul:
      return {"matmul %c, %m {#}", ""};
    case OpCode::kOuter:
      return {"outer %c, %c {#}", ""};
    case OpCode::kBatchMatmul:
      return {"batch_matmul %a, %b {#}", ""};
    case OpCode::kPack:
      return {"pack %m {groups = 1, width = 32, #}", ""};
    case OpCode::kMatmulPacked:
      return {"matmul_packed %c, %k {groups = 1, n = 32, #}", "%k = pack %m {groups = 1, width = 32} : f32[1,6,32]"};
    case OpCode::kMatmulRows:
      return {"matmul_rows %c, %k {groups = 1, width = 16, #}", "%k = constant {value = 3} : i8[5,6]"};
    case OpCode::kExtern:
      return {"", ""};  // needs PyTorch
    case OpCode::kCustomVjp:
      return {
          "custom_vjp %x, %y {inputs = 1, vjp = \"program @v(%x: f32[4,B], %y: f32[4,B], %g: f32[4,B]) { return %g "
          "}\", "
          "#}",
          ""};
    default:
      return {name + (info(code).arity == 1 ? " %x {#}" : " %x, %y {#}"), ""};
  }
}

std::string program_of(const Sample& sample, const std::string& attribute) {
  std::string op = sample.op;
  size_t place = op.find('#');
  std::string before = op.substr(0, place);
  if (attribute.empty() && before.ends_with(", ")) before.resize(before.size() - 2);
  return fmt::format("program @p({}) {{ {} %r = {}{}{} return %r }}", kInputs, sample.before, before, attribute,
                     op.substr(place + 1));
}

/// A scan of one result more.
std::string text_of(OpCode code, const std::string& attribute) {
  std::string text = program_of(sample(code), attribute);
  if (code == OpCode::kScan) text.replace(text.find("%r = scan"), 2, "%last, %r");
  return text;
}

std::vector<double> results_of(const std::string& text) {
  ir::Bindings bindings{{"B", 3}};
  auto inputs = testing::random_inputs(ir::parse(text), bindings, 5);
  inputs[5] = interpreter::Array::of(DType::kI64, {4, 3}, std::vector<double>(12, 2.0));  // divisors
  runtime::SerialTeam team;
  return testing::run_native(text, inputs, bindings, team)[0].to_doubles();
}

bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

std::vector<std::string> attributes() {
  std::vector<std::string> all;
  for (const ir::Annotation& annotation : ir::annotations())
    for (const char* value : {"true", "3", "-1", "1000000000000000000", "0.5", "\"because\"", "[1]", "dim(B)"})
      all.push_back(fmt::format("{} = {}", annotation.name, value));
  for (const char* value : {"true", "3", "\"because\""}) all.push_back(fmt::format("a.note = {}", value));
  return all;
}

TEST(Annotations, OfATextAreRefusedOrChangeNothing) {
  for (size_t i = 0; i < ir::kOpCount; ++i) {
    const auto code = static_cast<OpCode>(i);
    if (code == OpCode::kExtern) continue;
    const std::vector<double> want = results_of(text_of(code, ""));
    int accepted = 0;
    for (const std::string& attribute : attributes()) {
      const std::string text = text_of(code, attribute);
      const std::string error = error_of([&] { ir::parse(text); });  // an internal error passes through and fails
      if (error != "no error") {
        EXPECT_TRUE(error.starts_with("line 1, column ")) << text << "\n" << error;
        EXPECT_NE(error.find("the annotation '" + attribute.substr(0, attribute.find(' '))), std::string::npos)
            << error;
      } else {
        ++accepted;
        EXPECT_TRUE(same(results_of(text), want)) << text;
      }
    }
    EXPECT_GE(accepted, 3) << info(code).name;  // any op may have a note
  }
}

TEST(Annotations, SayWhatIsWrong) {
  auto message = [](OpCode code, const char* attribute) {
    return error_of([&] { ir::parse(text_of(code, attribute)); });
  };
  EXPECT_NE(message(OpCode::kAdd, "vjp.checkpoint = true").find("add: the annotation 'vjp.checkpoint' is of scan only"),
            std::string::npos);
  EXPECT_NE(message(OpCode::kNeg, "stage = 3").find("neg: unknown attribute 'stage'; it has no attributes"),
            std::string::npos);
  EXPECT_NE(
      message(OpCode::kScan, "vjp.checkpoint = 3").find("scan: the annotation 'vjp.checkpoint' must be true or false"),
      std::string::npos);
  EXPECT_EQ(message(OpCode::kNeg, "a.note = \"anybody's\""), "no error");
}

/// A dump of any pass is a program again: it prints as it was read, and every pass takes it.
TEST(Annotations, OfATextGoThroughEveryPass) {
  const bool before = settings().verify;
  mutable_settings().verify = true;
  const planning::CpuTarget target;
  for (size_t i = 0; i < ir::kOpCount; ++i) {
    const auto code = static_cast<OpCode>(i);
    if (code == OpCode::kExtern) continue;
    for (const std::string& attribute : attributes()) {
      const std::string text = text_of(code, attribute);
      if (error_of([&] { ir::parse(text); }) != "no error") continue;
      const std::string printed = print(ir::parse(text));
      EXPECT_EQ(print(ir::parse(printed)), printed);
      for (std::span<const passes::Pass> passes : {passes::all_passes(), target.layout_passes()})
        for (const passes::Pass& pass : passes) {
          ir::Program program = ir::parse(text);
          EXPECT_NO_THROW(passes::PassRunner(program).run(std::span(&pass, 1))) << pass.name << "\n" << text;
        }
      ir::Program program = ir::parse(text);
      EXPECT_NO_THROW(planning::lower(program, target)) << text;
    }
  }
  mutable_settings().verify = before;
}

/// Lowering's notes on a program are comments: the dump is the same program, and is lowered alike.
TEST(Annotations, ALoweredProgramIsAProgramAgain) {
  const testing::Lowered once(testing::program_text("gru"));
  const std::string dump = write_lowered(once.schedule);
  EXPECT_NE(dump.find("// stage 0"), std::string::npos);
  ir::Program again = ir::parse(dump);
  EXPECT_EQ(print(again, true), print(once.program, true));
  const planning::CpuTarget target;
  EXPECT_EQ(write_lowered(planning::lower(again, target)), dump);
}

// ---- attributes that a text gives and micro-kernels rely on

struct Panels {
  int64_t groups, unroll, lanes, k, n;
};

class PanelsOfAText : public ::testing::TestWithParam<Panels> {};

TEST_P(PanelsOfAText, AreTakenWhateverTheyAre) {
  auto [groups, unroll, lanes, k, n] = GetParam();
  const int64_t width = groups * unroll * lanes, panels = (n / groups + unroll * lanes - 1) / (unroll * lanes);
  for (const char* inner : {"K", ""}) {
    const std::string depth = *inner ? inner : std::to_string(k);
    const std::string text = fmt::format(
        "program @p(%x: f32[B,{0}], %w: f32[{0},{1}]) {{ %k = pack %w {{groups = {2}, width = {5}}} : "
        "f32[{3},{0},{4}]\n"
        "%y = matmul_packed %x, %k {{groups = {2}, n = {1}}} : f32[B,{1}] %t = tanh %y : f32[B,{1}] return %t }}",
        depth, n, groups, panels, width, unroll * lanes);
    ir::Bindings bindings{{"B", 7}, {"K", k}};
    auto inputs = testing::random_inputs(ir::parse(text), bindings, 3);
    runtime::SerialTeam team;
    auto got = testing::run_native(text, inputs, bindings, team)[0].to_doubles();
    auto want = interpreter::evaluate(ir::parse(text), inputs)[0].to_doubles();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Annotations, PanelsOfAText,
                         ::testing::Values(Panels{1, 2, 16, 6, 32}, Panels{4, 1, 16, 6, 64}, Panels{2, 3, 16, 6, 96},
                                           Panels{1, 100, 16, 6, 40}, Panels{5, 1, 16, 6, 50}, Panels{1, 2, 7, 6, 32},
                                           Panels{1, 1, 8, 6, 24}, Panels{1, 2, 16, 6, 0}, Panels{1, 2, 16, 0, 32},
                                           Panels{300, 1, 1, 3, 300}));

}  // namespace
}  // namespace weft::annotations_test
