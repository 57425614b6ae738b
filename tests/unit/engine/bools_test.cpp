// Bools in memory: any byte but 0 is true, as PyTorch has it (a view of bytes as bools may hold any).

#include <algorithm>
#include <functional>

#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "native_run.h"
#include "programs.h"

namespace weft::bools_test {
namespace {

using interpreter::Array;

/// A bool tensor of these bytes.
Array bools(std::vector<int64_t> sizes, std::vector<uint8_t> bytes) {
  Array array(DType::kBool, std::move(sizes));
  EXPECT_EQ(array.bytes.size(), bytes.size());
  std::ranges::transform(bytes, array.bytes.begin(), [](uint8_t byte) { return std::byte{byte}; });
  return array;
}

/// Every pair of some bytes, more than a vector of them.
constexpr uint8_t kBytes[] = {0, 1, 2, 0x7f, 0x80, 0xff};
constexpr int64_t kPairs = 36;

Array pairs(bool second) {
  std::vector<uint8_t> bytes;
  for (uint8_t a : kBytes)
    for (uint8_t b : kBytes) bytes.push_back(second ? b : a);
  return bools({kPairs}, std::move(bytes));
}

/// Runs the program in machine code and in the interpreter, which must agree, and returns its first result.
std::vector<double> result_of(const std::string& text, const std::vector<Array>& inputs) {
  runtime::SerialTeam team;
  std::vector<double> native = testing::run_native(text, inputs, {{"B", kPairs}}, team)[0].to_doubles();
  EXPECT_EQ(native, interpreter::evaluate(ir::parse(text), inputs)[0].to_doubles()) << text;
  return native;
}

struct Case {
  const char* op;
  std::function<double(bool, bool)> want;
};

const Case kCases[] = {
    {"copy %a : bool[B]", [](bool a, bool) { return a; }},
    {"not %a : bool[B]", [](bool a, bool) { return !a; }},
    {"and %a, %b : bool[B]", [](bool a, bool b) { return a && b; }},
    {"or %a, %b : bool[B]", [](bool a, bool b) { return a || b; }},
    {"eq %a, %b : bool[B]", [](bool a, bool b) { return a == b; }},
    {"ne %a, %b : bool[B]", [](bool a, bool b) { return a != b; }},
    {"lt %a, %b : bool[B]", [](bool a, bool b) { return a < b; }},
    {"le %a, %b : bool[B]", [](bool a, bool b) { return a <= b; }},
    {"gt %a, %b : bool[B]", [](bool a, bool b) { return a > b; }},
    {"ge %a, %b : bool[B]", [](bool a, bool b) { return a >= b; }},
    {"select %a, %b, %a : bool[B]", [](bool a, bool b) { return a && b; }},
    {"select %a, %x, %y : f32[B]", [](bool a, bool) { return a ? 3 : -5; }},
    {"cast %a : f32[B]", [](bool a, bool) { return a; }},
    {"cast %a : f64[B]", [](bool a, bool) { return a; }},
    {"cast %a : f16[B]", [](bool a, bool) { return a; }},
    {"cast %a : i64[B]", [](bool a, bool) { return a; }},
    {"cast %a : i32[B]", [](bool a, bool) { return a; }},
    {"cast %a : u8[B]", [](bool a, bool) { return a; }},
    {"cast %a : i8[B]", [](bool a, bool) { return a; }},
};

TEST(Bools, AnyByteButZeroIsTrue) {
  std::vector<double> first = pairs(false).to_doubles(), second = pairs(true).to_doubles();
  std::vector<Array> inputs{pairs(false), pairs(true),
                            Array::of(DType::kF32, {kPairs}, std::vector<double>(kPairs, 3.0)),
                            Array::of(DType::kF32, {kPairs}, std::vector<double>(kPairs, -5.0))};
  for (const Case& c : kCases) {
    std::vector<double> want;
    for (size_t i = 0; i < first.size(); ++i) want.push_back(c.want(first[i] != 0, second[i] != 0));
    std::string text =
        fmt::format("program @p(%a: bool[B], %b: bool[B], %x: f32[B], %y: f32[B]) {{ %r = {} return %r }}", c.op);
    EXPECT_EQ(result_of(text, inputs), want) << c.op;
  }
}

TEST(Bools, SumsCountTrueOnes) {
  EXPECT_EQ(result_of("program @p(%a: bool[B]) { %i = cast %a : i64[B] %r = reduce_sum %i {dims = [0]} : i64[] "
                      "return %r }",
                      {pairs(false)}),
            std::vector<double>{30});
}

TEST(Bools, StayTrueWhereTheyAreMoved) {
  std::vector<double> want = pairs(false).to_doubles();
  std::vector<Array> inputs{pairs(false)};
  EXPECT_EQ(
      result_of("program @p(%a: bool[B]) { %b = reverse %a {dim = 0} %r = reverse %b {dim = 0} return %r }", inputs),
      want);
  for (const char* op : {"transpose %b {perm = [1, 0]} : bool[1,B]", "slice %b {dim = 1, start = 0, limit = 1}",
                         "pad %b {dim = 1, low = 0, high = 0}", "concat %b {dim = 1}", "copy %b"})
    EXPECT_EQ(result_of(fmt::format("program @p(%a: bool[B]) {{ %b = broadcast %a {{dims = [0]}} : bool[B,1] %r = {} "
                                    "return %r }}",
                                    op),
                        inputs),
              want)
        << op;
}

/// The deciding bool is read from memory as it came in, without an op between that would make it 0 or 1.
TEST(Bools, ChooseABranch) {
  const char* text = R"(program @p(%p: bool[], %x: f32[]) {
    %r = cond %p then { %n = neg %x : f32[] yield %n } else { %c = copy %x : f32[] yield %c } : f32[]
    return %r })";
  for (uint8_t byte : kBytes) {
    std::vector<Array> inputs{bools({}, {byte}), Array::of(DType::kF32, {}, std::vector<double>{4})};
    EXPECT_EQ(result_of(text, inputs), std::vector<double>{byte ? -4.0 : 4.0}) << int{byte};
  }
}

TEST(Bools, KeepALoopGoing) {
  // As many steps as there are true bytes before the first 0.
  const char* text = R"(program @p(%flags: bool[7], %zero: i64[], %one: i64[]) {
    %r = while carry(%i0 = %zero) { %go = gather %flags, %i0 : bool[] yield %go }
      do(%i) { %next = add %i, %one : i64[] yield %next } : i64[]
    return %r })";
  std::vector<Array> inputs{bools({7}, {2, 1, 0xff, 0x80, 4, 0, 1}), Array::of(DType::kI64, {}, std::vector<double>{0}),
                            Array::of(DType::kI64, {}, std::vector<double>{1})};
  EXPECT_EQ(result_of(text, inputs), std::vector<double>{5});
}

TEST(Bools, AreCarriedAndStacked) {
  // The carry is the byte before, as it was.
  const char* text = R"(program @p(%x: bool[B], %h0: bool[]) {
    %h, %y = scan length B carry(%c = %h0) xs(%v = %x) {
      %both = and %c, %v : bool[]
      yield carry(%v) ys(%both) } : bool[], bool[B]
    return %y })";
  std::vector<double> want, bytes = pairs(true).to_doubles();
  double before = 1;
  for (double byte : bytes) {
    want.push_back(before != 0 && byte != 0);
    before = byte;
  }
  EXPECT_EQ(result_of(text, {pairs(true), bools({}, {0x40})}), want);
}

}  // namespace
}  // namespace weft::bools_test
