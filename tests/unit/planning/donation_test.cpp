// Results in the memory of inputs: which are written in place, which are refused, and that no stage reads a new value
// instead of an old one.

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "base/memory_range.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "ir/builder.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "lowered.h"
#include "native_run.h"
#include "passes/differentiation/vjp.h"
#include "passes/pass_runner.h"
#include "programs.h"
#include "random_program.h"

namespace weft::donation_test {
namespace {

using interpreter::Array;
using ir::Donation;
using ir::OpCode;
using ir::ValueId;
using testing::error_of;

/// The bytes of all results, on teams of several sizes, with little work shared too and threads made to drift apart.
void expect_on_all_teams(const std::string& text, const std::vector<Array>& inputs, const ir::Bindings& bindings,
                         const std::function<void(const std::vector<Array>&)>& expect) {
  for (int64_t threads : {1, 2, 4}) {
    mutable_settings().share_all = threads > 1;
    mutable_settings().delays = threads == 4;
    SCOPED_TRACE(fmt::format("{} threads\n{}", threads, text));
    std::vector<Array> found;
    EXPECT_NO_THROW(found = testing::run_native(text, inputs, bindings, runtime::own_team(threads)));
    mutable_settings().share_all = mutable_settings().delays = false;
    expect(found);
  }
}

/// Values that fuse copies if it needs memory for them.
bool is_view(const ir::Op& op) { return planning::is_view(op.code) || op.code == OpCode::kReshape; }

/// The op of the body that computes this value; null for an input.
const ir::Op* maker(const ir::Program& program, ValueId value) {
  for (const ir::Op& op : program.body.ops)
    if (std::ranges::find(op.results, value) != op.results.end()) return &op;
  return nullptr;
}

/// For each result of a lowered program that takes an input's memory: whether it is computed there, or copied at the
/// end.
std::string places(const std::string& text) {
  const testing::Lowered lowered(text);
  const ir::Program& program = lowered.program;
  EXPECT_EQ(ir::print(ir::parse(ir::print(program))), ir::print(program));
  std::string all;
  for (const Donation& donation : program.donations) {
    // A copy of another stage's result; fuse makes copies of inputs and views where it needs memory for them.
    const ir::Op* op = maker(program, program.body.results[donation.result]);
    const ir::Op* source = op && op->code == OpCode::kCopy ? maker(program, op->operands[0]) : nullptr;
    const std::string place = !op ? "kept" : source && !is_view(*source) ? "copied" : "in place";
    all += (all.empty() ? "" : ", ") + place;
  }
  return all;
}

struct Hazard {
  const char* name;
  const char* places;
  const char* text;
};

constexpr Hazard kHazards[] = {
    {"an_update", "in place, in place", R"(program @p(%p: f32[B,40], %g: f32[B,40], %m: f32[B,40]) {
       %gg = mul %g, %g : f32[B,40]
       %m2 = add %m, %gg : f32[B,40]
       %u = tanh %m2 : f32[B,40]
       %p2 = sub %p, %u : f32[B,40]
       return %p2 in %p, %m2 in %m })"},
    {"the_input_itself", "kept", "program @p(%p: f32[B,40]) { %n = neg %p : f32[B,40]\n return %p in %p, %n }"},
    {"the_input_itself_twice", "kept", "program @p(%p: f32[B,40]) { return %p, %p in %p, %p }"},
    // The first result is made elsewhere, since %p is still to be read, and copied. The second is made in place.
    {"a_swap", "copied, in place", "program @p(%p: f32[B,40], %q: f32[B,40]) { return %q in %p, %p in %q }"},
    {"a_turn", "copied, in place, in place",
     "program @p(%p: f32[B,40], %q: f32[B,40], %r: f32[B,40]) { return %q in %p, %r in %q, %p in %r }"},
    {"a_read_later_in_the_stage", "copied", R"(program @p(%p: f32[B,40], %g: f32[B,40]) {
       %p2 = sub %g, %g : f32[B,40]
       %p3 = tanh %p2 : f32[B,40]
       %q = mul %p3, %p : f32[B,40]
       return %p3 in %p, %q })"},
    {"a_read_by_columns", "copied", R"(program @p(%p: f32[B,40]) {
       %n = neg %p : f32[B,40]
       %w = broadcast %p {dims = [0, 2]} : f32[B,3,40]
       %s = reduce_sum %w {dims = [1, 2]} : f32[B]
       %t = transpose %p {perm = [1, 0]} : f32[40,B]
       return %n in %p, %s, %t })"},
    {"a_sum_first", "in place", R"(program @p(%p: f32[B,40]) {
       %s = reduce_sum %p {dims = [1]} : f32[B]
       %w = broadcast %s {dims = [0]} : f32[B,40]
       %p2 = div %p, %w : f32[B,40]
       return %p2 in %p })"},
    {"rows_of_another_row", "copied", R"(program @p(%p: f32[6,40]) {
       %a = slice %p {dim = 0, start = 1, limit = 6} : f32[5,40]
       %z = slice %p {dim = 0, start = 0, limit = 1} : f32[1,40]
       %s = concat %a, %z {dim = 0} : f32[6,40]
       %n = add %s, %p : f32[6,40]
       %b = slice %p {dim = 0, start = 2, limit = 5} : f32[3,40]
       %m = neg %b : f32[3,40]
       %l = slice %n {dim = 0, start = 0, limit = 3} : f32[3,40]
       %k = mul %l, %b : f32[3,40]
       return %n in %p, %m, %k })"},
    {"a_broadcast_row", "copied", R"(program @p(%p: f32[40], %x: f32[B,40]) {
       %w = broadcast %p {dims = [1]} : f32[B,40]
       %y = mul %x, %w : f32[B,40]
       %s = reduce_sum %y {dims = [0]} : f32[40]
       %p2 = add %p, %p : f32[40]
       %v = broadcast %p2 {dims = [1]} : f32[B,40]
       %z = add %y, %v : f32[B,40]
       %u = mul %z, %w : f32[B,40]
       return %p2 in %p, %s, %u })"},
    {"a_reshape", "in place", R"(program @p(%p: f32[6,40]) {
       %r = reshape %p : f32[40,6]
       %n = tanh %r : f32[40,6]
       %q = reshape %n : f32[6,40]
       %s = reduce_max %r {dims = [1]} : f32[40]
       %m = add %q, %p : f32[6,40]
       %o = reduce_sum %p {dims = [0]} : f32[40]
       %t = add %s, %o : f32[40]
       %w = broadcast %t {dims = [1]} : f32[6,40]
       %v = mul %w, %p : f32[6,40]
       return %m in %p, %v })"},
    {"a_product_of_its_rows", "copied", R"(program @p(%p: f32[B,40], %w: f32[40,40]) {
       %y = matmul %p, %w : f32[B,40]
       %z = tanh %y : f32[B,40]
       return %z in %p })"},
    {"a_product_added", "in place", R"(program @p(%p: f32[B,40], %x: f32[B,24], %w: f32[24,40]) {
       %y = matmul %x, %w : f32[B,40]
       %z = add %p, %y : f32[B,40]
       return %z in %p })"},
    {"weights", "in place", R"(program @p(%w: f32[40,40], %x: f32[B,40]) {
       %y = matmul %x, %w : f32[B,40]
       %t = transpose %w {perm = [1, 0]} : f32[40,40]
       %v = mul %t, %t : f32[40,40]
       %z = matmul %y, %w : f32[B,40]
       return %v in %w, %z })"},
    {"the_state_of_a_scan", "copied, copied", R"(program @p(%h0: f32[B,24], %x: f32[T,B,24], %w: f32[24,24]) {
       %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {
         %a = matmul %h, %w : f32[B,24]
         %b = add %a, %xt : f32[B,24]
         %n = tanh %b : f32[B,24]
         yield carry(%n) ys(%n)
       } : f32[B,24], f32[T,B,24]
       return %ys in %x, %hT in %h0 })"},
    {"captured_by_a_scan", "copied", R"(program @p(%u: f32[B,24], %x: f32[T,B,24]) {
       %n = tanh %u : f32[B,24]
       %hT, %ys = scan length T carry(%h = %n) xs(%xt = %x) {
         %a = mul %h, %u : f32[B,24]
         %b = add %a, %xt : f32[B,24]
         yield carry(%b) ys(%b)
       } : f32[B,24], f32[T,B,24]
       return %n in %u, %ys, %hT })"},
    {"captured_by_branches", "copied, copied", R"(program @p(%u: f32[B,24], %v: f32[B,24], %f: bool[]) {
       %n = tanh %u : f32[B,24]
       %r = cond %f then {
         %a = mul %n, %u : f32[B,24]
         yield %a
       } else {
         %t = slice %u {dim = 1, start = 0, limit = 24} : f32[B,24]
         %c = add %t, %v : f32[B,24]
         yield %c
       } : f32[B,24]
       return %n in %u, %r in %v })"},
    {"captured_by_a_while", "copied, copied", R"(program @p(%u: f32[B,24], %k: i64[]) {
       %one = constant {value = 1} : i64[]
       %zero = constant {value = 0} : i64[]
       %n = neg %u : f32[B,24]
       %s, %l = while carry(%a = %n, %i = %k) {
         %go = gt %i, %zero : bool[]
         yield %go
       } do(%b, %j) {
         %c = add %b, %u : f32[B,24]
         %i2 = sub %j, %one : i64[]
         yield %c, %i2
       } : f32[B,24], i64[]
       return %s in %u, %l in %k })"},
    {"a_loop_of_steps", "copied", R"(program @p(%u: f32[3,24], %i: i64[T,3]) {
       %hT = scan length T carry(%h = %u) xs(%it = %i) {
         %a = gather %h, %it : f32[3,24]
         %b = add %a, %u : f32[3,24]
         yield carry(%b) ys()
       } : f32[3,24]
       return %hT in %u })"},
    {"rows_replaced", "in place", R"(program @p(%c: f32[6,40], %u: f32[1,40], %i: i64[]) {
       %zero = constant {value = 0} : i64[]
       %s = reduce_sum %c {dims = [0]} : f32[40]
       %t = reshape %s : f32[1,40]
       %v = add %t, %u : f32[1,40]
       %k = mul %i, %zero : i64[]
       %d = dynamic_update %c, %v, %k {dim = 0} : f32[6,40]
       return %d in %c })"},
    {"rows_replaced_of_what_is_read_later", "copied", R"(program @p(%c: f32[6,40], %u: f32[1,40], %i: i64[]) {
       %zero = constant {value = 0} : i64[]
       %k = mul %i, %zero : i64[]
       %d = dynamic_update %c, %u, %k {dim = 0} : f32[6,40]
       %w = transpose %d {perm = [1, 0]} : f32[40,6]
       %y = matmul %c, %w : f32[6,6]
       return %d in %c, %y })"},
    {"rows_replaced_by_its_own", "copied", R"(program @p(%c: f32[6,40], %i: i64[]) {
       %zero = constant {value = 0} : i64[]
       %k = mul %i, %zero : i64[]
       %d = dynamic_update %c, %c, %k {dim = 0} : f32[6,40]
       return %d in %c })"},
    {"two_results_of_one_value", "in place, in place", R"(program @p(%p: f32[B,40], %q: f32[B,40]) {
       %a = add %p, %q : f32[B,40]
       %b = add %p, %q : f32[B,40]
       return %a in %p, %a, %b in %q })"},
    {"a_scalar", "in place", R"(program @p(%n: f32[], %x: f32[B,40]) {
       %one = constant {value = 1.0} : f32[]
       %m = add %n, %one : f32[]
       %w = broadcast %m {dims = []} : f32[B,40]
       %y = mul %x, %w : f32[B,40]
       return %m in %n, %y })"},
    {"small_integers", "copied", R"(program @p(%p: u8[B,40]) {
       %r = reverse %p {dim = 1} : u8[B,40]
       return %r in %p })"},
    {"halves", "in place", R"(program @p(%p: bf16[B,40], %g: bf16[B,40]) {
       %a = mul %p, %g : bf16[B,40]
       %b = add %a, %p : bf16[B,40]
       return %b in %p })"},
    {"beside_parts", "copied", R"(program @p(%p: f32[B,80], %q: f32[B,40]) {
       %l = slice %p {dim = 1, start = 40, limit = 80} : f32[B,40]
       %c = concat %l, %q {dim = 1} : f32[B,80]
       return %c in %p })"},
};

class Hazards : public ::testing::TestWithParam<Hazard> {};

TEST_P(Hazards, ResultsAreThoseOfTheInterpreter) {
  const ir::Program program = ir::parse(GetParam().text);
  EXPECT_EQ(places(GetParam().text), GetParam().places);
  for (const ir::Bindings& bindings : {ir::Bindings{{"T", 3}, {"B", 5}}, ir::Bindings{{"T", 2}, {"B", 1}},
                                       ir::Bindings{{"T", 0}, {"B", 0}}, ir::Bindings{{"T", 4}, {"B", 67}}}) {
    const std::vector<Array> inputs = testing::random_inputs(program, bindings, 7);
    const std::vector<Array> expected = interpreter::evaluate(program, inputs);
    expect_on_all_teams(GetParam().text, inputs, bindings, [&](const std::vector<Array>& found) {
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        const std::vector<double> x = found[i].to_doubles(), y = expected[i].to_doubles();
        for (size_t k = 0; k < x.size(); ++k)
          ASSERT_NEAR(x[k], y[k], 2e-2 * std::max(1.0, std::abs(y[k])) * (expected[i].dtype == DType::kF32 ? 1e-3 : 1))
              << "result " << i << ", element " << k << ", B " << bindings.at("B");
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Donation, Hazards, ::testing::ValuesIn(kHazards),
                         [](const auto& test) { return std::string(test.param.name); });

/// The program with results in the memory of some inputs: values of the body, the inputs themselves among them, updates
/// of theirs at the body's end.
ir::Program with_donations(ir::Program program, uint64_t seed) {
  std::mt19937_64 random(seed);
  ir::Builder builder(program, program.body);
  std::vector<ValueId> values = program.body.args;
  for (const ir::Op& op : program.body.ops) values.insert(values.end(), op.results.begin(), op.results.end());
  const std::vector<ValueId> inputs = program.body.args;
  std::vector<ValueId> results = program.body.results;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (random() % 4 == 0) continue;
    std::vector<ValueId> alike;
    for (ValueId value : values)
      if (program.type(value) == program.type(inputs[i])) alike.push_back(value);
    ValueId chosen = alike[random() % alike.size()];
    const bool is_number = is_floating(program.type(chosen).dtype);
    if (is_number && random() % 3 != 0) chosen = builder.emit(OpCode::kAdd, {inputs[i], chosen});
    if (is_number && random() % 3 == 0) chosen = builder.tanh(chosen);
    values.push_back(chosen);
    program.donations.push_back({i, results.size()});
    results.push_back(chosen);
  }
  builder.ret(results);
  ir::verify(program);
  return program;
}

/// A bool is true in any byte but 0.
bool same_bits(const Array& a, const Array& b) {
  if (a.dtype == DType::kBool) return a.to_doubles() == b.to_doubles();
  return std::memcmp(a.bytes.data(), b.bytes.data(), b.bytes.size()) == 0;
}

TEST(Donation, RandomProgramsGiveTheSameBits) {
  // Donated weights are always packed, and products on panels have bits of their own.
  const std::string pack = std::exchange(mutable_settings().pack, "always");
  int in_place = 0, copied = 0;
  for (uint64_t seed = 0; seed < 120 && !::testing::Test::HasFatalFailure(); ++seed) {
    const ir::Program program = with_donations(
        testing::random_program(seed, {.ops = 8, .scan_depth = seed % 3 == 0 ? 2 : 1, .mixed = seed % 2 == 0}), seed);
    ir::Program plain = program;
    plain.donations.clear();
    const std::string text = ir::print(program), plain_text = ir::print(plain);
    const std::string found_places = places(text);
    in_place += found_places.find("in place") != std::string::npos;
    copied += found_places.find("copied") != std::string::npos;
    const ir::Bindings bindings = {{"T", static_cast<int64_t>(seed % 4)}, {"B", static_cast<int64_t>(1 + seed % 9)}};
    const std::vector<Array> inputs = testing::random_inputs(program, bindings, seed);
    runtime::SerialTeam alone;
    const std::vector<Array> expected = testing::run_native(plain_text, inputs, bindings, alone);
    expect_on_all_teams(text, inputs, bindings, [&](const std::vector<Array>& found) {
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_TRUE(same_bits(found[i], expected[i])) << "seed " << seed << ", result " << i << ", " << found_places;
    });
  }
  mutable_settings().pack = pack;
  EXPECT_GT(in_place, 20);
  EXPECT_GT(copied, 20);
}

/// One step of Adam for `count` parameters of 64x64: parameters, gradients and moments, all but the gradients donated.
ir::Program adam(int64_t count) {
  ir::Program program;
  ir::Builder b(program, program.body);
  const ir::Type type{DType::kF32, {ir::Dim(64), ir::Dim(64)}};
  auto constant = [&](double value) { return b.broadcast(b.constant(value, {DType::kF32, {}}), type.shape, {}); };
  std::vector<ValueId> results;
  for (int64_t i = 0; i < count; ++i) {
    ValueId p = b.input(type), g = b.input(type), m = b.input(type), v = b.input(type);
    ValueId m2 = b.add(b.mul(m, constant(0.9)), b.mul(g, constant(0.1)));
    ValueId v2 = b.add(b.mul(v, constant(0.999)), b.mul(b.mul(g, g), constant(0.001)));
    ValueId root = b.add(b.unary(OpCode::kSqrt, v2), constant(1e-8));
    const auto first = static_cast<size_t>(4 * i);
    for (auto [input, value] : {std::pair{first, b.sub(p, b.div(b.mul(m2, constant(1e-3)), root))},
                                std::pair{first + 2, m2}, std::pair{first + 3, v2}}) {
      program.donations.push_back({input, results.size()});
      results.push_back(value);
    }
  }
  b.ret(results);
  ir::verify(program);
  return program;
}

TEST(Donation, AnOptimiserStepNeedsNoMemory) {
  for (int64_t count : {1, 20}) {
    const ir::Program program = adam(count);
    EXPECT_EQ(places(ir::print(program)).find("copied"), std::string::npos);
    const std::string plan = engine::compile(ir::print(program))->plan({});
    EXPECT_TRUE(plan.ends_with("peak 0 bytes\n")) << plan;
    EXPECT_NE(plan.find(", output 0 in input 0\n"), std::string::npos) << plan;
    EXPECT_NE(plan.find(", output 2 in input 3\n"), std::string::npos) << plan;
  }
}

TEST(Donation, NoBufferLiesInAnInputsMemory) {
  // Large enough to lie in an output until that is written; the input is read before, and after %a.
  const ir::Program program = ir::parse(R"(program @p(%p: f32[512,1024], %x: f32[512,1024]) {
    %a = transpose %x {perm = [1, 0]} : f32[1024,512]
    %b = transpose %a {perm = [1, 0]} : f32[512,1024]
    %c = add %b, %p : f32[512,1024]
    return %c in %p })");
  const std::vector<Array> inputs = testing::random_inputs(program, {}, 1);
  runtime::SerialTeam alone;
  const std::vector<Array> found = testing::run_native(ir::print(program), inputs, {}, alone);
  EXPECT_EQ(found[0].to_doubles(), interpreter::evaluate(program, inputs)[0].to_doubles());
}

TEST(Donation, TheDerivativeTakesNoMemory) {
  const ir::Program program = ir::parse(kHazards[0].text);
  const passes::Vjp vjp = passes::vjp(program, {true, true, true});
  for (const ir::Program& made : {vjp.forward, vjp.backward, passes::vjp_of_primals(program, {true, true, true}),
                                  passes::jvp_of_primals(program, {true, true, true})})
    EXPECT_TRUE(made.donations.empty());
}

TEST(Donation, CanonicalTextHasThemToo) {
  const ir::Program program = ir::parse("program @p(%p: f32[2], %q: f32[2]) { return %q, %q in %p }");
  EXPECT_EQ(ir::print(program, true), "program @p(%0: f32[2], %1: f32[2]) {\n  return %1, %1 in %0\n}\n");
  EXPECT_EQ(program.donations, (std::vector<Donation>{{0, 1}}));
}

TEST(Donation, ProgramsThatCannotBeAreRefused) {
  auto error = [](const char* text) { return error_of([&] { ir::parse(text); }); };
  EXPECT_NE(error("program @p(%p: f32[2], %q: f32[3]) { return %q in %p }")
                .find("return: %q is f32[3], and cannot take the memory of %p, which is f32[2]"),
            std::string::npos);
  EXPECT_NE(error("program @p(%p: f32[2]) { %a = neg %p\n return %a in %p, %p in %p }")
                .find("return: the memory of %p is given to two results"),
            std::string::npos);
  EXPECT_NE(error("program @p(%p: f32[2]) { %a = neg %p\n return %a in %a }")
                .find("line 2, column 15: return: %a is no input of the program"),
            std::string::npos);
  EXPECT_NE(error("program @p(%p: f32[2]) { return %p in %z }").find("%z is not defined"), std::string::npos);
  ir::Program program = ir::parse("program @p(%p: f32[2]) { return %p in %p }");
  program.donations = {{0, 1}};
  EXPECT_NE(error_of([&] { verify(program); }).find("return: result 1 cannot take the memory of input 0"),
            std::string::npos);
}

TEST(Donation, InputsThatShareMemoryAreRefused) {
  auto executable =
      engine::compile("program @p(%p: f32[N], %x: f32[N]) { %a = add %p, %x : f32[N]\n return %a in %p }");
  std::vector<float> memory(8, 1.0F);
  const std::vector<int64_t> sizes = {4};
  runtime::SerialTeam alone;
  auto run = [&](float* p, float* x) {
    const std::vector<runtime::TensorRef> inputs = {{p, DType::kF32, sizes}, {x, DType::kF32, sizes}};
    executable->run(inputs, {inputs.data(), 1}, alone);
  };
  for (float* x : {memory.data(), memory.data() + 3})
    EXPECT_EQ(error_of([&] { run(memory.data(), x); }),
              "weft::call: inputs 0 and 1 of program @p share memory, and a result is stored there");
  EXPECT_EQ(memory, std::vector<float>(8, 1.0F));
  run(memory.data(), memory.data() + 4);
  EXPECT_EQ(memory, (std::vector<float>{2, 2, 2, 2, 1, 1, 1, 1}));
}

TEST(Donation, OverlapsAreFoundWhereverTheyAre) {
  std::byte memory[64];
  auto range = [&](int first, int last, bool is_written) {
    return MemoryRange{memory + first, memory + last, is_written};
  };
  using Pair = std::pair<size_t, size_t>;
  auto find = [](std::vector<MemoryRange> ranges) { return find_overlap(ranges); };
  EXPECT_EQ(find({}), std::nullopt);
  EXPECT_EQ(find({range(0, 8, true), range(8, 16, false), range(16, 16, true)}), std::nullopt);
  EXPECT_EQ(find({range(0, 8, false), range(4, 16, false)}), std::nullopt);
  EXPECT_EQ(find({range(8, 16, true), range(0, 9, false)}), (Pair{0, 1}));
  EXPECT_EQ(find({range(0, 64, false), range(1, 2, false), range(40, 41, true)}), (Pair{0, 2}));
  EXPECT_EQ(find({range(0, 64, true), range(1, 2, false)}), (Pair{0, 1}));
  EXPECT_EQ(find({range(5, 5, true), range(0, 64, false)}), std::nullopt);
  EXPECT_EQ(find({range(0, 30, false), range(2, 9, true), range(9, 12, false)}), (Pair{0, 1}));
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<MemoryRange> ranges;
    for (int i = 0; i < 5; ++i) {
      const int first = static_cast<int>(random() % 60);
      ranges.push_back(range(first, first + static_cast<int>(random() % 8), random() % 3 == 0));
    }
    auto meet = [&](size_t a, size_t b) {
      return (ranges[a].is_written || ranges[b].is_written) && ranges[a].first < ranges[a].last &&
             ranges[b].first < ranges[b].last && ranges[a].first < ranges[b].last && ranges[b].first < ranges[a].last;
    };
    bool any = false;
    for (size_t a = 0; a < 5; ++a)
      for (size_t b = 0; b < a; ++b) any = any || meet(a, b);
    auto found = find_overlap(ranges);
    ASSERT_EQ(found.has_value(), any);
    if (found) {
      ASSERT_TRUE(meet(found->first, found->second));
    }
  }
}

TEST(Donation, AFailedCallLeavesTheProgramUsable) {
  const std::string text = R"(program @p(%p: f32[4], %table: f32[3], %i: i64[4]) {
    %a = neg %p : f32[4]
    %g = gather %table, %i : f32[4]
    %b = add %a, %g : f32[4]
    return %b in %p })";
  auto array = [](DType dtype, const std::vector<double>& values) {
    return Array::of(dtype, {std::ssize(values)}, values);
  };
  auto inputs = [&](double last) {
    return std::vector<Array>{array(DType::kF32, {1, 2, 3, 4}), array(DType::kF32, {10, 20, 30}),
                              array(DType::kI64, {0, 1, 2, last})};
  };
  runtime::SerialTeam alone;
  EXPECT_NE(error_of([&] { testing::run_native(text, inputs(7), {}, alone); }).find("index 7 is out of bounds"),
            std::string::npos);
  EXPECT_EQ(testing::run_native(text, inputs(0), {}, alone)[0].to_doubles(), (std::vector<double>{9, 18, 27, 6}));
}

}  // namespace
}  // namespace weft::donation_test
