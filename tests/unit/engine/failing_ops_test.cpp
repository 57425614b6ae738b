// Ops that fail when they run. Every op of the table says whether it may fail. If a call fails, inputs in whose memory
// results are stored stay unchanged, wherever in the program the op is.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/external.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "programs.h"

namespace weft::failing_ops_test {
namespace {

using interpreter::Array;
using ir::OpCode;
using testing::replaced;

/// `lib.check(x, n)`: x, or an error where n is negative.
void run_for_test(std::string_view, std::span<const ExternTensor> operands, std::span<const ExternTensor> results) {
  if (*static_cast<const int64_t*>(operands[1].data) < 0) throw Error("from far away");
  std::memcpy(results[0].data, operands[0].data, 4 * 8 * sizeof(float));
}

/// An op between a value SRC and its result, both T[4,8]; the value `bad` is wrong for it as argument %n, `good` is
/// right.
struct Failing {
  OpCode code;
  const char* arguments;  ///< beside those that all programs have
  const char* text;
  std::vector<double> good, bad;
  const char* error;
  DType dtype = DType::kF32;
};

const std::vector<Failing>& failing() {
  const std::vector<double> rows = {3, 0, 2, 1}, outside = {0, 1, 2, 4};
  static const std::vector<Failing> all = {
      {OpCode::kGather, "%n: i64[4]", "%RES = gather %SRC, %n : T[4,8]", rows, outside, "index 4 is out"},
      {OpCode::kScatter, "%n: i64[4]", "%RES = scatter %SRC, %n, %u : T[4,8]", rows, outside, "index 4 is out"},
      {OpCode::kScatterAdd, "%n: i64[4]", "%RES = scatter_add %n, %SRC : T[4,8]", rows, outside, "index 4 is out"},
      {OpCode::kDynamicSlice,
       "%n: i64[]",
       "%RES = dynamic_slice %SRC, %n {dim = 0, size = 4} : T[4,8]",
       {0},
       {1},
       "dynamic_slice"},
      {OpCode::kDynamicUpdate,
       "%n: i64[]",
       R"(%partRES = slice %u {dim = 0, start = 0, limit = 2} : T[2,8]
         %RES = dynamic_update %SRC, %partRES, %n {dim = 0} : T[4,8])",
       {2},
       {3},
       "dynamic_update"},
      {OpCode::kDiv,
       "%n: i64[]",
       "%wRES = broadcast %n {dims = []} : T[4,8]\n%RES = div %SRC, %wRES : T[4,8]",
       {3},
       {0},
       "integer division by zero",
       DType::kI64},
      {OpCode::kRem,
       "%n: i64[]",
       "%wRES = broadcast %n {dims = []} : T[4,8]\n%RES = rem %SRC, %wRES : T[4,8]",
       {3},
       {0},
       "integer division by zero",
       DType::kI64},
      {OpCode::kExtern,
       "%n: i64[]",
       R"text(%RES = extern %SRC, %n {call = "lib.check()"} : T[4,8])text",
       {1},
       {-1},
       "from far away"},
      {OpCode::kScan,
       "%n: i64[3], %packed: T[9,8]",
       R"(%RES, %ysRES = scan length 3 ragged(%n, B, N) carry(%h = %SRC) xs(%xt = %packed) {
           %s = add %h, %xt : T[B,8]
           yield carry(%s) ys(%s)
         } : T[B,8], T[N,8])",
       {4, 3, 2},
       {3, 4, 2},
       "batch_sizes"},
      {OpCode::kCond, "%n: i64[4]", R"(%zRES = constant {value = 0} : i64[]
         %eRES = slice %n {dim = 0, start = 0, limit = 1} : i64[1]
         %fRES = reshape %eRES : i64[]
         %cRES = ge %fRES, %zRES : bool[]
         %RES = cond %cRES then {
           %g = gather %SRC, %n : T[4,8]
           yield %g
         } else { yield %SRC } : T[4,8])",
       rows, outside, "index 4 is out"},
  };
  return all;
}

/// Where the op is among writes to %p and %z. A second op that fails on the same value is %b.
constexpr std::pair<const char*, const char*> kPlaces[] = {
    {"beside", "%q = add %p, %u : T[4,8]\nOP(a, x)\nreturn %q in %p, %a"},
    {"behind", "%q = add %p, %u : T[4,8]\nOP(a, q)\nreturn %q in %p, %a"},
    {"in its own memory", "OP(a, p)\nreturn %a in %p"},
    {"in front", "OP(a, p)\n%q = add %z, %u : T[4,8]\nreturn %a in %p, %q in %z"},
    {"in front, and read", "OP(a, p)\n%q = add %z, %a : T[4,8]\nreturn %a in %p, %q in %z"},
    {"twice", "OP(a, p)\nOP(b, z)\nreturn %a in %p, %b in %z"},
    {"twice, one behind the other", "OP(a, p)\n%c = add %a, %z : T[4,8]\nOP(b, c)\nreturn %a in %p, %b in %z"},
    {"between writes", "%q = add %p, %u : T[4,8]\nOP(a, q)\n%c = mul %a, %z : T[4,8]\nreturn %q in %p, %c in %z"},
};

std::string type_of(DType dtype) { return dtype == DType::kF32 ? "f32" : "i64"; }

/// The program with OP(name, source) in this place.
std::string program(const Failing& op, std::string place) {
  for (size_t at = 0; (at = place.find("OP(")) != std::string::npos;) {
    const size_t comma = place.find(',', at), end = place.find(')', at);
    const std::string result = place.substr(at + 3, comma - at - 3), source = place.substr(comma + 2, end - comma - 2);
    std::string text = replaced(replaced(op.text, "RES", result), "SRC", source);
    place.replace(at, end + 1 - at, text);
  }
  std::string text = "program @p(%p: T[4,8], %z: T[4,8], %x: T[4,8], %u: T[4,8], " + std::string(op.arguments) +
                     ") {\n" + place + " }";
  if (op.code == OpCode::kScan) text = replaced(replaced(text, "T[4,8]", "T[B,8]"), "T[9,8]", "T[N,8]");
  return replaced(text, "T[", type_of(op.dtype) + "[");
}

std::vector<Array> inputs_of(const Failing& op, const std::vector<double>& n) {
  std::vector<Array> inputs;
  for (int input = 0; input < 4; ++input) {
    std::vector<double> values(32);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 11) + 2 * input + 1;
    inputs.push_back(Array::of(op.dtype, {4, 8}, values));
  }
  inputs.push_back(Array::of(DType::kI64, n.size() == 1 ? std::vector<int64_t>{} : std::vector{std::ssize(n)}, n));
  if (op.code == OpCode::kScan) inputs.push_back(Array::of(op.dtype, {9, 8}, std::vector<double>(72, 0.5)));
  return inputs;
}

/// The results; those in the memory of inputs are left there. Throws the call's error.
std::vector<Array> run(const engine::Executable& executable, std::vector<Array>& inputs, runtime::Team& team) {
  const ir::Program& program = executable.program();
  std::vector<runtime::TensorRef> from, to;
  for (Array& input : inputs) from.push_back({input.bytes.data(), input.dtype, input.sizes});
  std::vector<Array> results;
  for (ir::ValueId result : program.body.results)
    results.emplace_back(program.type(result).dtype, std::vector<int64_t>{4, 8});
  for (Array& result : results) to.push_back({result.bytes.data(), result.dtype, result.sizes});
  for (const ir::Donation& donation : program.donations) to[donation.result].data = from[donation.input].data;
  executable.run(from, to, team);
  for (const ir::Donation& donation : program.donations) results[donation.result] = inputs[donation.input];
  return results;
}

void expect_left_alone(const std::string& text, const Failing& op) {
  SCOPED_TRACE(text);
  const auto executable = engine::compile(text);
  for (int64_t threads : {1, 3}) {
    runtime::Team& team = runtime::own_team(threads);
    std::vector<Array> inputs = inputs_of(op, op.bad);
    const std::string error = testing::error_of([&] { run(*executable, inputs, team); });
    EXPECT_NE(error.find(op.error), std::string::npos) << error;
    const std::vector<Array> before = inputs_of(op, op.bad);
    for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(inputs[i].bytes, before[i].bytes) << "input " << i;
    inputs = inputs_of(op, op.good);
    const std::vector<Array> expected = interpreter::evaluate(ir::parse(text), inputs);
    const std::vector<Array> found = run(*executable, inputs, team);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].to_doubles(), expected[i].to_doubles());
  }
}

class FailingOps : public ::testing::Test {
 protected:
  void SetUp() override { set_extern(run_for_test); }
  void TearDown() override { set_extern(nullptr); }
};

TEST_F(FailingOps, EveryOpSaysWhetherItFails) {
  for (size_t i = 0; i < ir::kOpCount; ++i) {
    const auto code = static_cast<OpCode>(i);
    EXPECT_NE(ir::traits_of(code).fails, ir::Fails::kUnsaid) << ir::info(code).name;
    if (ir::traits_of(code).fails == ir::Fails::kNever) continue;
    EXPECT_TRUE(std::ranges::any_of(failing(), [&](const Failing& each) { return each.code == code; }))
        << ir::info(code).name << " is tried by no program of this test";
  }
}

TEST_F(FailingOps, LeaveDonatedMemoryAsItWas) {
  for (const Failing& op : failing())
    for (const auto& [name, place] : kPlaces) {
      SCOPED_TRACE(name);
      expect_left_alone(program(op, place), op);
    }
}

/// Two updates in the memory of caches. Where they read the same index both are made there, else the second elsewhere.
TEST_F(FailingOps, UpdatesThatLookAtTheSameAreMadeInPlace) {
  const std::string same = R"(program @p(%k: f32[64,8], %v: f32[64,8], %a: f32[2,8], %n: i64[], %m: i64[]) {
    %k2 = dynamic_update %k, %a, %n {dim = 0} : f32[64,8]
    %s = reduce_sum %k2 {dims = [0]} : f32[8]
    %w = broadcast %s {dims = [1]} : f32[2,8]
    %v2 = dynamic_update %v, %w, %n {dim = 0} : f32[64,8]
    return %k2 in %k, %v2 in %v })";
  const std::string other = replaced(same, "%w, %n {", "%w, %m {");
  for (const auto& [text, copies] : {std::pair{same, false}, std::pair{other, true}}) {
    SCOPED_TRACE(text);
    const auto executable = engine::compile(text);
    const std::string plan = executable->plan({});
    EXPECT_EQ(plan.find("\n%v2: 2048 bytes, output 1 in input 1\n") == std::string::npos, copies) << plan;
    for (const auto& [n, m, fails] : {std::tuple{3, 5, false}, std::tuple{63, 5, true}, std::tuple{3, 63, copies}}) {
      auto array = [](std::vector<int64_t> sizes, double first) {
        std::vector<double> values(static_cast<size_t>(interpreter::count_of(sizes)));
        for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<double>(i % 7);
        return Array::of(DType::kF32, sizes, values);
      };
      const std::vector<Array> before = {array({64, 8}, 1), array({64, 8}, 2), array({2, 8}, 3),
                                         Array::of(DType::kI64, {}, std::array{double(n)}),
                                         Array::of(DType::kI64, {}, std::array{double(m)})};
      std::vector<Array> inputs = before;
      std::vector<runtime::TensorRef> from;
      for (Array& input : inputs) from.push_back({input.bytes.data(), input.dtype, input.sizes});
      const std::string error =
          testing::error_of([&] { executable->run(from, {from.data(), 2}, runtime::own_team(2)); });
      EXPECT_EQ(error != "no error", fails) << error;
      const std::vector<Array> expected = fails ? before : interpreter::evaluate(ir::parse(text), before);
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(inputs[i].to_doubles(), expected[i].to_doubles()) << "input " << i;
    }
  }
}

}  // namespace
}  // namespace weft::failing_ops_test
