// The text form: parser and printer.

#include <stdlib.h>

#include <cctype>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "ir/builder.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "programs.h"
#include "random_program.h"

namespace weft::text_test {
namespace {

using ir::Dim;
using ir::parse;
using ir::print;
using testing::error_of;

std::string round_trip(const std::string& text) { return print(parse(text)); }

TEST(Text, ExamplesKeepEverythingButTheirComments) {
  for (const char* name : {"gru", "lstm", "rnn_tanh", "lngru", "packed_gru", "packed_lstm"}) {
    std::string text = testing::program_text(name);
    std::string without_comment = text.substr(text.find("program"));
    EXPECT_EQ(round_trip(text), without_comment);
  }
}

TEST(Text, RandomProgramsRoundTrip) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    ir::Program program = testing::random_program(seed, {.ops = 10, .scan_depth = 2, .ragged = seed % 3 == 0});
    std::string text = print(program);
    ASSERT_EQ(round_trip(text), text) << "seed " << seed;
    std::string canonical = print(program, true);
    ASSERT_EQ(print(parse(canonical), true), canonical) << "seed " << seed;
  }
}

/// A locale in which bytes beyond ASCII are letters, made by the C library's tool for as long as this lives.
class Latin1 {
 public:
  Latin1() {
    folder_ = ::testing::TempDir() + "weft-locales-XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) return;
    const std::string command =
        fmt::format("localedef -i en_US -f ISO-8859-1 '{}/latin1' > /dev/null 2> /dev/null", folder_);
    if (std::system(command.c_str()) != 0) return;
    ::setenv("LOCPATH", folder_.c_str(), 1);
    made_ = std::setlocale(LC_ALL, "latin1") != nullptr;
  }
  ~Latin1() {
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
    std::filesystem::remove_all(folder_);
  }
  bool made() const { return made_; }

 private:
  std::string folder_;
  bool made_ = false;
};

TEST(Text, IsTheSameInEveryLocale) {
  ir::Program program;
  ir::Builder b(program, program.body);
  ir::ValueId x = b.input({DType::kF64, {Dim(4000)}}, "\xe9t\xe9");
  b.ret({b.emit(ir::OpCode::kMul, {x, b.broadcast(b.constant(1234567.5, {DType::kF64, {}}), {Dim(4000)}, {})})});
  program.name = "\xe9";
  const std::string text = print(program);
  EXPECT_NE(text.find("program @_(%_t_: f64[4000])"), std::string::npos) << text;
  Latin1 locale;
  if (!locale.made()) GTEST_SKIP() << "no tool that makes a locale";
  ASSERT_TRUE(std::isalnum(0xe9));
  EXPECT_EQ(print(program), text);
  EXPECT_EQ(round_trip(text), text);
}

TEST(Text, AttributesRoundTrip) {
  ir::Program program;
  ir::Builder b(program, program.body);
  ir::ValueId x = b.input({DType::kF64, {}}, "x");
  double tiny = std::numeric_limits<double>::denorm_min();
  double inf = std::numeric_limits<double>::infinity();
  for (double value : {0.1, -0.0, 1e300, tiny, inf, -inf, 3.0, 1.0 / 3, std::numeric_limits<double>::quiet_NaN()})
    b.constant(value, {DType::kF64, {}});
  b.emit(ir::OpCode::kNeg, {x},
         {{"note.text", std::string("a \"b\" \\ \n\x80")},
          {"note.dim", Dim(4) * Dim::symbol("T")},
          {"note.list", std::vector<int64_t>{-1, 2}},
          {"note.empty", std::vector<int64_t>{}},
          {"note.flag", false},
          {"note.least", std::numeric_limits<int64_t>::min()}});
  b.ret({x});
  ir::Program again = parse(print(program));
  EXPECT_EQ(print(again), print(program));
  for (size_t i = 0; i < program.body.ops.size(); ++i) {
    const ir::Attrs& expected = program.body.ops[i].attrs;
    const ir::Attrs& found = again.body.ops[i].attrs;
    if (i == 8)  // NaN is not equal to itself
      EXPECT_TRUE(std::isnan(again.body.ops[i].attr<double>("value")));
    else
      EXPECT_EQ(found, expected) << print(program);
  }
}

TEST(Text, NamesThatClashGetASuffix) {
  ir::Program program;
  ir::Builder b(program, program.body);
  ir::ValueId x = b.input({DType::kF32, {}}, "x");
  ir::ValueId y = b.neg(x);
  ir::ValueId z = b.neg(y);
  ir::ValueId w = b.neg(z);
  program.values[y].name = "x";
  program.values[z].name = "x_1";
  program.values[w].name = "7";  // numbers are for values without a name
  b.ret({w});
  std::string text = print(program);
  EXPECT_EQ(text,
            "program @main(%x: f32[]) {\n  %x_1 = neg %x : f32[]\n  %x_1_1 = neg %x_1 : f32[]\n"
            "  %0 = neg %x_1_1 : f32[]\n  return %0\n}\n");
  EXPECT_EQ(round_trip(text), text);
}

TEST(Text, CanonicalTextDoesNotDependOnNames) {
  std::string a = "program @p(%a: f32[T]) { %b = neg %a : f32[T] return %b }";
  std::string b = "program @p(%7: f32[T]) { %q = neg %7 : f32[T] return %q }";
  EXPECT_EQ(print(parse(a), true), print(parse(b), true));
}

TEST(Text, TypesMayBeLeftOutWhereTheyFollow) {
  EXPECT_EQ(round_trip("program @p(%a: f32[T,3]) { %b = neg %a return %b }"),
            "program @p(%a: f32[T,3]) {\n  %b = neg %a : f32[T,3]\n  return %b\n}\n");
}

TEST(Text, DimsAreMonomials) {
  EXPECT_EQ(round_trip("program @p(%a: f32[B*2*T*3], %t: f32[T,B]) { return }"),
            "program @p(%a: f32[6*B*T], %t: f32[T,B]) {\n  return\n}\n");
  EXPECT_EQ(round_trip("program @p(%a: f32[4611686018427387904], %b: f32[0*T], %t: f32[T,T*T]) { return }"),
            "program @p(%a: f32[4611686018427387904], %b: f32[0], %t: f32[T,T*T]) {\n  return\n}\n");
}

struct Case {
  const char* text;
  const char* message;
};

class TextError : public ::testing::TestWithParam<Case> {};

TEST_P(TextError, SaysWhereAndWhatWasExpected) {
  EXPECT_EQ(error_of([] { parse(GetParam().text); }), GetParam().message);
}

const Case kErrors[] = {
    {"", "line 1, column 1: expected 'program', but the text ends"},
    {"program main() {}", "line 1, column 9: expected the program's name, as @main, but found 'main'"},
    {"program @p() { return", "line 1, column 22: expected '}', but the text ends"},
    {"program @p() { return } x", "line 1, column 25: expected the end of the text, but found 'x'"},
    {"program @p(%a: f32[T]\n  %b: f32[T])", "line 2, column 3: expected ')', but found '%b'"},
    {"program @p(%a: f31[T]) {",
     "line 1, column 16: there is no dtype 'f31'; there are bool, i8, u8, i16, i32, i64, f16, bf16, f32, f64"},
    {"program @p(%a: f32[-1]) {", "line 1, column 20: the size -1 is outside 0..2^62"},
    {"program @p(%a: f32[99999999999999999999]) {",
     "line 1, column 20: 99999999999999999999 does not fit into 64 bits"},
    {"program @p(%a: f32[4611686018427387904*4]) {",
     "line 1, column 20: a size overflows 64 bits: 4611686018427387904 times 4"},
    {"program @p(%a: f32[T], %a: f32[T]) {", "line 1, column 24: %a is already defined"},
    {"program @p(%a: f32[]) {\n  %b = nag %a : f32[]\n", "line 2, column 8: there is no op named 'nag'"},
    {"program @p(%a: f32[]) {\n  %b = neg %c : f32[]\n", "line 2, column 12: %c is not defined"},
    {"program @p(%a: f32[]) {\n  %b = neg %a : f64[]\n", "line 2, column 17: neg gives f32[], not f64[]"},
    {"program @p(%a: f32[]) {\n  %b = neg %a, %a\n", "line 2, column 8: neg: takes 1 operand, not 2"},
    {"program @p(%a: f32[]) {\n  %b = constant {value = 1.0}\n",
     "line 2, column 8: constant: its type must be declared"},
    {"program @p(%a: f32[]) {\n  %b = constant {value = 9007199254740993} : i64[]\n",
     "line 2, column 8: constant: 9007199254740993 is beyond 2^53, where f64 is not exact"},
    {"program @p(%a: f32[]) {\n  %b = constant {value = 1e999} : f32[]\n",
     "line 2, column 26: 1e999 is outside the range of f64"},
    {"program @p(%a: f32[]) {\n  %b = neg %a {x = 1} : f32[]\n",
     "line 2, column 8: neg: unknown attribute 'x'; it has no attributes"},
    {"program @p(%a: f32[]) {\n  %b = neg %a {x.y = } : f32[]\n",
     "line 2, column 22: expected an attribute's value: true, 3, 0.5, inf, nan, [0, 1], \"text\" or dim(T), but found "
     "'}'"},
    {"program @p(%a: f32[]) {\n  %b = neg %a {x.y = 1, x.y = 2} : f32[]\n",
     "line 2, column 25: the attribute 'x.y' is given twice"},
    {"program @p(%a: f32[]) {\n  %b = neg %a {x.y = \"abc} : f32[]\n",
     "line 2, column 22: this string does not end on its line"},
    {"program @p(%a: f32[]) {\n  %b = neg %a {x.y = \"\\q\"} : f32[]\n",
     "line 2, column 22: a string's escapes are \\\", \\\\ and \\xHH"},
    {"program @p(%a: f32[]) { $ }", "line 1, column 25: unexpected character '$'"},
    {"program @p(%a: f32[]) { \xff }", "line 1, column 25: unexpected byte 0xff"},
    {"program @p(%a: f32[2*T]) { return %a }",
     "line 1, column 1: the symbol T is not the size of any input's dim, so no call could bind it"},
    {"program @p(%a: f32[T]) {\n scan length T carry() xs(%s = %a) { yield carry() ys(%a) }\n",
     "line 2, column 2: scan gives 1 results, but 0 are named"},
    {"program @p(%a: f32[T]) {\n %r = scan length T carry(%s = %a) xs() { yield carry() ys(%a) }\n",
     "line 2, column 43: scan: 1 carries go in, but 0 are yielded"},
    {"program @p(%a: f32[T]) {\n %r = scan length T carry() xs(%s = %a) { %b = neg %s yield carry() ys(%b) }\n return "
     "%b }",
     "line 3, column 9: %b is defined in a region that has ended here"},
    {"program @p(%a: f32[]) {\n %r = scan length 3 carry() xs(%s = %a) { yield carry() ys() }\n",
     "line 2, column 32: scan: an xs operand is f32[], which has no steps"},
};

INSTANTIATE_TEST_SUITE_P(Text, TextError, ::testing::ValuesIn(kErrors));

TEST(Text, RegionsNestOnlySoDeep) {
  std::string text = "program @p(%a: f32[1]) {\n";
  for (int i = 0; i < 100000; ++i) text += "scan length 1 carry() xs() {\n";
  EXPECT_EQ(error_of([&] { parse(text); }), "line 34, column 1: regions are nested more than 32 deep");
}

TEST(Text, LargeTypesDoNotExhaustMemory) {
  std::string dim = "T";
  for (int i = 0; i < 15; ++i) dim += "*T";
  std::string type = "f32[" + dim;
  for (int i = 0; i < 15; ++i) type += "," + dim;
  std::string text = "program @p(%a: " + type + "], %t: f32[T]) {\n";
  for (int i = 0; i < 100000; ++i) text += fmt::format("%b{} = neg %a\n", i);
  EXPECT_NE(error_of([&] { parse(text + "return }"); }).find("the program is too large"), std::string::npos);
}

}  // namespace
}  // namespace weft::text_test
