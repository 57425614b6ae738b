// Tensors without elements: they may have no memory, any number of rows, and sizes whose products overflow.

#include <cmath>

#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "native_run.h"
#include "programs.h"

namespace weft::empty_test {
namespace {

using interpreter::Array;

/// Runs the program on inputs of zeros, which are none where there are no elements.
std::vector<Array> run(const std::string& text, const ir::Bindings& bindings, int64_t threads = 1) {
  ir::Program program = ir::parse(text);
  std::vector<Array> inputs;
  for (ir::ValueId id : program.body.args)
    inputs.emplace_back(program.type(id).dtype, interpreter::sizes_of(program.type(id).shape, bindings));
  return testing::run_native(text, inputs, bindings, runtime::own_team(threads));
}

/// An op on %x: D[N,C] and %w: D[C,C], where C is no column at all.
const char* const kOps[] = {
    "neg %x",
    "add %x, %x",
    "cast %x : f64[N,{}]",
    "transpose %x {{perm = [1, 0]}}",
    "reverse %x {{dim = 0}}",
    "reverse %x {{dim = 1}}",
    "broadcast %x {{dims = [0, 2]}} : f32[N,3,{}]",
    "reshape %x : f32[{},N]",
    "matmul %x, %w",
    "outer %x, %x",
    "reduce_sum %x {{dims = [0]}}",
    "reduce_max %x {{dims = [0]}}",
    "reduce_sum %x {{dims = [0, 1]}}",
    "scatter %x, %i, %x2",
    "gather %x, %i",
    "scatter_add %i, %x2 : f32[N,{}]",
    "dynamic_slice %x, %s {{dim = 0, size = 3}}",
    "dynamic_update %x, %x2, %s {{dim = 0}}",
    "dynamic_update %x, %x, %s {{dim = 1}}",
};

std::string program_of(const char* op, const char* columns) {
  return fmt::format(
      "program @p(%x: f32[N,{0}], %w: f32[{0},{0}], %i: i64[3], %x2: f32[3,{0}], %n: f32[N,0], %c: f32[{0},0], "
      "%s: i64[]) "
      "{{ %r = {1} return %r }}",
      columns, fmt::format(fmt::runtime(op), columns));
}

/// So many rows that any work for each row would never end.
constexpr int64_t kRows = int64_t{1} << 50;

TEST(Empty, RowsWithoutColumnsAreNoWork) {
  for (const char* op : kOps)
    for (const char* columns : {"0", "C"})
      for (int64_t threads : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} of {} columns", op, columns));
        std::vector<Array> results = run(program_of(op, columns), {{"N", kRows}, {"C", 0}}, threads);
        for (double value : results[0].to_doubles()) EXPECT_EQ(value, 0);
      }
}

TEST(Empty, JoinedAndPaddedRowsWithoutColumnsAreNoWork) {
  for (const char* op : {"concat %x, %x {dim = 1} : f32[N,0]", "pad %x {dim = 1, low = 0, high = 0} : f32[N,0]",
                         "slice %x {dim = 1, start = 0, limit = 0} : f32[N,0]", "iota {dim = 1} : i64[N,0]"})
    EXPECT_EQ(run(fmt::format("program @p(%x: f32[N,0]) {{ %r = {} return %r }}", op), {{"N", kRows}})[0].count(), 0)
        << op;
}

TEST(Empty, StepsOfRowsWithoutColumnsAreNoWork) {
  for (const char* columns : {"0", "C"})
    for (int64_t threads : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} columns", columns));
      const std::string text = fmt::format(R"(program @p(%x: f32[3,N,{0}], %h0: f32[N,{0}], %c: f32[{0},0]) {{
        %last, %ys = scan length 3 carry(%h = %h0) xs(%v = %x) {{
          %s = add %h, %v : f32[N,{0}]
          %y = tanh %s : f32[N,{0}]
          yield carry(%y) ys(%s) }}
        return %last, %ys }})",
                                           columns);
      EXPECT_EQ(run(text, {{"N", kRows}, {"C", 0}}, threads)[1].count(), 0);
    }
}

TEST(Empty, HugeDimsBesideNoneDoNotOverflow) {
  const int64_t huge = int64_t{1} << 40;
  for (const char* op : {"transpose %x {perm = [3, 1, 2, 0]}", "reverse %x {dim = 1}", "neg %x",
                         "broadcast %x {dims = [0, 1, 2, 4]} : f32[A,A,Z,A,A]", "reshape %x : f32[Z,A,A,A]",
                         "dynamic_slice %x, %s {dim = 1, size = dim(A)}", "dynamic_update %x, %x, %s {dim = 0}"})
    EXPECT_EQ(run(fmt::format("program @p(%x: f32[A,A,Z,A], %n: f32[Z,A], %s: i64[]) {{ %r = {} return %r }}", op),
                  {{"A", huge}, {"Z", 0}})[0]
                  .count(),
              0)
        << op;
}

/// A sum over nothing is there for every row all the same.
TEST(Empty, ReductionsOfNothingAreTheirNeutralElements) {
  for (const char* columns : {"0", "C"})
    for (int64_t threads : {1, 2}) {
      ir::Bindings bindings{{"N", 77}, {"C", 0}};
      for (double sum : run(program_of("reduce_sum %x {{dims = [1]}}", columns), bindings, threads)[0].to_doubles())
        EXPECT_EQ(sum, 0);
      for (double most : run(program_of("reduce_max %x {{dims = [1]}}", columns), bindings, threads)[0].to_doubles())
        EXPECT_EQ(most, -INFINITY);
    }
  // Beside elementwise ops of the same rows, in the same stage.
  auto results = run(R"(program @p(%x: f32[N,C]) {
    %y = neg %x : f32[N,C]
    %s = reduce_sum %y {dims = [1]} : f32[N]
    return %y, %s })",
                     {{"N", 5}, {"C", 0}});
  EXPECT_EQ(results[1].to_doubles(), std::vector<double>(5, 0.0));
  // What is folded, and behind it what is kept.
  EXPECT_EQ(run("program @p(%x: f32[A,0,3]) { %r = reduce_max %x {dims = [1]} return %r }", {{"A", 2}})[0].to_doubles(),
            std::vector<double>(6, -INFINITY));
  EXPECT_EQ(run("program @p(%x: f32[A,0]) { %t = transpose %x {perm = [1, 0]} %r = matmul %x, %t return %r }"
                "",
                {{"A", 2}})[0]
                .count(),
            4);
}

/// Zeros are written where there is nothing to copy.
TEST(Empty, PaddingOfNothingIsZeros) {
  EXPECT_EQ(run("program @p(%x: f32[0,B]) { %r = pad %x {dim = 0, low = 1, high = 2} return %r }", {{"B", 2}})[0]
                .to_doubles(),
            std::vector<double>(6, 0.0));
  EXPECT_EQ(run("program @p(%x: f32[B,0,3]) { %r = pad %x {dim = 1, low = 1, high = 0} return %r }", {{"B", 2}})[0]
                .to_doubles(),
            std::vector<double>(6, 0.0));
  EXPECT_EQ(run("program @p(%x: f32[B,0,3], %y: f32[B,1,3]) { %r = concat %x, %y {dim = 1} return %r }", {{"B", 2}})[0]
                .to_doubles(),
            std::vector<double>(6, 0.0));
}

/// Loops of one step each around a sum over N elements that depends on the innermost. A loop is guessed to take 16
/// steps, so that the estimate soon is more than 64 bits hold.
std::string nested(int depth) {
  std::string text =
      "program @p(%x: f32[N]) { %zero = constant {value = 0} : i64[] %one = constant {value = 1} : i64[]\n";
  for (int i = 0; i < depth; ++i)
    text += fmt::format(
        "%r{0} = while carry(%i{0} = %zero) {{ %p{0} = lt %i{0}, %one : bool[] yield %p{0} }} do(%k{0}) {{\n", i);
  text += fmt::format(
      "%f = cast %k{} : f32[] %b = broadcast %f {{dims = []}} : f32[N] %m = mul %x, %b : f32[N]\n"
      "%s = reduce_sum %m {{dims = [0]}} : f32[] %d = cast %s : i64[] %r{} = add %d, %one : i64[]\n",
      depth - 1, depth);
  for (int i = depth; i-- > 0;)
    text += fmt::format("%n{0} = add %k{0}, %r{1} : i64[] yield %n{0} }} : i64[]\n", i, i + 1);
  return text + "return %r0 }";
}

TEST(Cost, OfNestedLoopsIsAnEstimate) {
  for (int depth : {12, 16, 30})
    EXPECT_EQ(run(nested(depth), {{"N", 1 << 20}})[0].to_doubles(), std::vector<double>{1}) << depth;
}

TEST(Sizes, ProductsThatOverflowFitNoInput) {
  const char* text = "program @p(%a: f32[A,0], %b: f32[B,0], %c: f32[A*B,0]) { %r = neg %c : f32[A*B,0] return %r }";
  auto message = [&](int64_t a, int64_t b, int64_t c) {
    auto executable = engine::compile(text);
    std::vector<int64_t> sizes[] = {{a, 0}, {b, 0}, {c, 0}};
    std::vector<runtime::TensorRef> inputs;
    for (const auto& each : sizes) inputs.push_back({nullptr, DType::kF32, each});
    runtime::TensorRef output{nullptr, DType::kF32, sizes[2]};
    runtime::SerialTeam team;
    return testing::error_of([&] { executable->run(inputs, {&output, 1}, team); });
  };
  const int64_t half = int64_t{1} << 32;
  EXPECT_EQ(message(half, half, 0),
            "weft::call: input 2 'c' of program @p must be f32[A*B,0] with A = 4294967296 (dim 0 of input 0 'a') and "
            "B = 4294967296 (dim 0 of input 1 'b'), but got f32[0,0]");
  EXPECT_EQ(message(half, half / 4, half / 4 * half), "no error");
  EXPECT_EQ(message(half, half / 4, 1),
            "weft::call: input 2 'c' of program @p must be f32[A*B,0] with A = 4294967296 (dim 0 of input 0 'a') and "
            "B = 1073741824 (dim 0 of input 1 'b'), but got f32[1,0]");
  EXPECT_EQ(message(0, int64_t{1} << 62, 0), "no error");
}

}  // namespace
}  // namespace weft::empty_test
