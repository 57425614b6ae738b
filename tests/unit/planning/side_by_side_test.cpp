// Scans that don't depend on each other, run at the same time: which scans, when they do, and that the results are
// those of the interpreter and the same bits on any number of threads.

#include "planning/loops/side_by_side.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/settings.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "lowered.h"
#include "machine.h"
#include "native_run.h"
#include "passes/differentiation/vjp.h"
#include "programs.h"
#include "random_program.h"
#include "runtime/memory/arena_layout.h"
#include "runtime/plan/run.h"
#include "wide_step.h"

namespace weft::side_by_side_test {
namespace {

using interpreter::Array;
using runtime::StagePlan;

struct Program {
  const char* name;
  std::vector<size_t> groups;  ///< the number of scans of each
  const char* text;
  size_t follows = 0;  ///< how many of these scans follow another, counted once for each scan that they follow
};

const Program kPrograms[] = {
    {"both_ways", {2}, R"(program @p(%h0: f32[B,40], %x: f32[T,B,9], %v: f32[40,9], %w: f32[40,40], %u: f32[40,40]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,40]
       %f, %fs = scan length T carry(%h = %h0) xs(%at = %a) {
         %r = matmul %h, %w {transpose_b = true} : f32[B,40]
         %b = add %r, %at : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %fe = matmul %fs, %w {transpose_b = true} : f32[T,B,40]
       %c = matmul %x, %v {transpose_b = true} : f32[T,B,40]
       %d = tanh %c : f32[T,B,40]
       %g, %gs = scan reverse length T carry(%h = %h0) xs(%dt = %d) {
         %r = matmul %h, %u {transpose_b = true} : f32[B,40]
         %b = add %r, %dt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %both = concat %fe, %gs {dim = 2} : f32[T,B,80]
       return %both, %f, %g })"},
    {"two_layers", {}, R"(program @p(%h0: f32[B,40], %x: f32[T,B,40], %w: f32[40,40], %u: f32[40,40]) {
       %f, %fs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %r = matmul %h, %w {transpose_b = true} : f32[B,40]
         %b = add %r, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %g, %gs = scan reverse length T carry(%h = %h0) xs(%xt = %fs) {
         %r = matmul %h, %u {transpose_b = true} : f32[B,40]
         %b = add %r, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       return %gs, %f, %g })"},
    {"by_its_last_carry", {}, R"(program @p(%h0: f32[B,40], %x: f32[T,B,40]) {
       %f, %fs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %b = add %h, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %g, %gs = scan length T carry(%h = %f) xs(%xt = %x) {
         %b = mul %h, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       return %gs, %fs, %g })"},
    {"three_and_one_that_reads_two", {3}, R"(program @p(%h0: f32[B,40], %x: f32[T,B,40], %w: f32[40,40]) {
       %f, %fs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %b = add %h, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %g, %gs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %b = mul %h, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %e, %es = scan length T carry(%h = %f) xs(%xt = %gs) {
         %b = add %h, %xt : f32[B,40]
         %n = sigmoid %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %d, %ds = scan reverse length T carry(%h = %h0) xs(%xt = %x) {
         %r = matmul %h, %w : f32[B,40]
         %b = add %r, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       return %fs, %es, %ds, %d, %e })"},
    {"over_an_input_that_the_other_reads", {}, R"(program @p(%h0: f32[B,40], %x: f32[T,B,40], %y: f32[T,B,40]) {
       %f, %fs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %b = add %h, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %g, %gs = scan length T carry(%h = %h0) xs(%yt = %y) {
         %b = mul %h, %yt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       return %fs, %gs in %x, %g, %f })"},
    {"behind_what_may_fail", {2}, R"(program @p(%h0: f32[B,40], %x: f32[T,B,40], %i: i64[B]) {
       %f, %fs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %b = add %h, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %h1 = gather %h0, %i : f32[B,40]
       %g, %gs = scan length T carry(%h = %h1) xs(%xt = %x) {
         %b = mul %h, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       return %fs, %gs, %g, %f })"},
    {"layers",
     {3},
     R"(program @p(%h0: f32[B,40], %x: f32[T,B,40], %w: f32[40,40], %u: f32[40,40], %v: f32[40,40]) {
       %f, %fs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %r = matmul %h, %w {transpose_b = true} : f32[B,40]
         %b = add %r, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %a = matmul %fs, %v {transpose_b = true} : f32[T,B,40]
       %g, %gs = scan length T carry(%h = %h0) xs(%at = %a) {
         %r = matmul %h, %u {transpose_b = true} : f32[B,40]
         %b = add %r, %at : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %e, %es = scan length T carry(%h = %h0) xs(%gt = %gs, %ft = %fs) {
         %b = mul %h, %gt : f32[B,40]
         %c = add %b, %ft : f32[B,40]
         %n = tanh %c : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       return %es, %fs, %f, %g, %e })",
     3},
    {"layers_backwards",
     {2},
     R"(program @p(%h0: f32[B,40], %x: f32[T,B,40], %v: f32[40,40], %m: f32[T,B,40]) {
       %f, %fs = scan reverse length T carry(%h = %h0) xs(%xt = %x) {
         %b = add %h, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %a = matmul %fs, %v {transpose_b = true} : f32[T,B,40]
       %d = mul %a, %m : f32[T,B,40]
       %g, %gs = scan reverse length T carry(%h = %h0) xs(%dt = %d) {
         %b = mul %h, %dt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       return %gs, %f, %g })",
     1},
    {"a_layer_that_reads_more_than_its_step", {}, R"(program @p(%h0: f32[B,40], %x: f32[T,B,40], %w: f32[40,40]) {
       %f, %fs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %b = add %h, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %s = reduce_sum %fs {dims = [0]} : f32[B,40]
       %g, %gs = scan length T carry(%h = %h0) xs(%ft = %fs) {
         %b = mul %h, %ft : f32[B,40]
         %c = add %b, %s : f32[B,40]
         %n = tanh %c : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       return %gs, %f, %g })"},
    {"a_layer_of_steps_that_the_first_did_before", {}, R"(program @p(%h0: f32[2,40], %x: f32[5,2,40], %w: f32[40,40]) {
       %f, %fs = scan length 5 carry(%h = %h0) xs(%xt = %x) {
         %b = add %h, %xt : f32[2,40]
         %n = tanh %b : f32[2,40]
         yield carry(%n) ys(%n)
       } : f32[2,40], f32[5,2,40]
       %late = slice %fs {dim = 0, start = 1, limit = 5} : f32[4,2,40]
       %a = matmul %late, %w {transpose_b = true} : f32[4,2,40]
       %g, %gs = scan length 4 carry(%h = %h0) xs(%at = %a) {
         %b = mul %h, %at : f32[2,40]
         %n = tanh %b : f32[2,40]
         yield carry(%n) ys(%n)
       } : f32[2,40], f32[4,2,40]
       return %gs, %f, %g })"},
    {"a_layer_over_what_a_layer_stacks_in_an_input",
     {2},
     R"(program @p(%h0: f32[B,40], %x: f32[T,B,40]) {
       %f, %fs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %b = add %h, %xt : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       %g, %gs = scan length T carry(%h = %h0) xs(%ft = %fs) {
         %b = mul %h, %ft : f32[B,40]
         %n = tanh %b : f32[B,40]
         yield carry(%n) ys(%n)
       } : f32[B,40], f32[T,B,40]
       return %fs in %x, %gs, %f, %g })",
     1},
};

std::ostream& operator<<(std::ostream& out, const Program& program) { return out << program.text; }

/// The number of scans in each group of the plan. Each place between the first scan and the last is in a group once, or
/// in the windows of a scan that follows another.
std::vector<size_t> groups_of(const runtime::Plan& plan) {
  std::vector<size_t> groups;
  for (size_t at = 0; at < plan.stages.size(); ++at) {
    const auto& [before, scans, after, follows] = plan.stages[at].side_by_side;
    if (scans.empty()) continue;
    groups.push_back(scans.size());
    std::vector<int64_t> all = scans;
    for (int64_t place = 0; place < scans.back(); ++place) {
      const int64_t index = plan.stages[at + static_cast<size_t>(place)].index;
      const bool is_listed = std::ranges::count(before, place) + std::ranges::count(after, place) > 0;
      for (const auto& each : follows)
        for (const auto& window : plan.stages[at + static_cast<size_t>(scans[static_cast<size_t>(each.scan)])].windows)
          if (window.stage == index && !is_listed && std::ranges::count(all, place) == 0) all.push_back(place);
    }
    all.insert(all.end(), before.begin(), before.end());
    all.insert(all.end(), after.begin(), after.end());
    std::ranges::sort(all);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int64_t>(i));
    EXPECT_EQ(std::ssize(all), scans.back() + 1);
  }
  return groups;
}

/// How many programs of a kind: WEFT_RANDOM_STEPS, else a few.
uint64_t rounds() {
  const char* wanted = std::getenv("WEFT_RANDOM_STEPS");
  return wanted ? std::strtoull(wanted, nullptr, 10) : 12;
}

class SideBySide : public ::testing::Test {
 protected:
  SideBySide() { mutable_settings().side_by_side = 1; }
  ~SideBySide() override {
    mutable_settings().side_by_side = mutable_settings().window = -1;
    mutable_settings().share_all = mutable_settings().guard = mutable_settings().delays = false;
  }

  /// Calls on teams of several sizes, whose threads share even little work, against one thread, bit by bit.
  static void compare(std::string text, const std::vector<Array>& inputs, const ir::Bindings& bindings) {
    if (settings().delays) text = "// with delays\n" + text;  // not the machine code that has none
    mutable_settings().share_all = false;
    runtime::SerialTeam alone;
    const std::vector<Array> expected = testing::run_native(text, inputs, bindings, alone);
    mutable_settings().share_all = true;
    for (int64_t threads : {2, 3, 7}) {
      const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(threads));
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(std::memcmp(found[i].bytes.data(), expected[i].bytes.data(), expected[i].bytes.size()), 0)
            << "result " << i << " with " << threads << " threads\n"
            << text;
    }
  }
};

class SideBySidePrograms : public SideBySide, public ::testing::WithParamInterface<Program> {};

TEST_P(SideBySidePrograms, AreScansThatNeedNothingOfEachOtherOrFollow) {
  const testing::Lowered lowered(GetParam().text);
  EXPECT_EQ(groups_of(lowered.schedule.plan), GetParam().groups);
  size_t follows = 0;
  for (const StagePlan& stage : lowered.schedule.plan.stages) follows += stage.side_by_side.follows.size();
  EXPECT_EQ(follows, GetParam().follows);
}

TEST_P(SideBySidePrograms, GiveTheResultsOfTheInterpreter) {
  const std::string text = testing::replaced(GetParam().text, "f32", "f64");
  const ir::Program program = ir::parse(text);
  for (int64_t batch : {0, 1, 3})
    for (int64_t length : {0, 1, 6}) {
      const ir::Bindings bindings{{"T", length}, {"B", batch}};
      std::vector<Array> inputs = testing::random_inputs(program, bindings, 3);
      for (size_t i = 0; i < inputs.size(); ++i)  // an index
        if (program.type(program.body.args[i]).dtype == DType::kI64) std::ranges::fill(inputs[i].bytes, std::byte{0});
      const std::vector<Array> expected = interpreter::evaluate(program, inputs);
      for (int64_t window : {-1, 2})
        for (int64_t threads : {1, 2, 3, 7}) {
          mutable_settings().window = window;
          mutable_settings().share_all = threads > 1;
          mutable_settings().guard = window == 2;
          const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(threads));
          EXPECT_LE(testing::difference(found, expected), 1e-9)
              << "T " << length << ", B " << batch << ", window " << window << ", " << threads << " threads";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, SideBySidePrograms, ::testing::ValuesIn(kPrograms),
                         [](const auto& test) { return test.param.name; });

/// The program with the inputs, ops and results of another program after its own.
ir::Program beside(ir::Program program, const ir::Program& other) {
  const auto shift = static_cast<ir::ValueId>(program.values.size());
  for (const ir::Value& value : other.values) program.new_value(value.type);
  for (ir::Value& value : program.values) value.name.clear();
  auto append = [&](auto& self, const ir::Block& from, ir::Block& to) -> void {
    auto shifted = [&](const std::vector<ir::ValueId>& ids, std::vector<ir::ValueId>& all) {
      for (ir::ValueId id : ids) all.push_back(id + shift);
    };
    shifted(from.args, to.args);
    for (const ir::Op& op : from.ops) {
      ir::Op& copy = to.ops.emplace_back(ir::Op{op.code, {}, {}, op.attrs, {}});
      shifted(op.operands, copy.operands);
      shifted(op.results, copy.results);
      for (const ir::Block& region : op.regions) self(self, region, copy.regions.emplace_back());
    }
    shifted(from.results, to.results);
  };
  append(append, other.body, program.body);
  return ir::parse(ir::print(program));
}

ir::Program random_pair(uint64_t seed, const testing::WideOptions& options) {
  return beside(testing::random_wide_step(seed, options), testing::random_wide_step(seed + 1000, options));
}

TEST_F(SideBySide, RandomStepsGiveTheBitsOfOneThread) {
  for (bool delays : {false, true})
    for (uint64_t seed = 0; seed < rounds() && !HasFatalFailure(); ++seed) {
      mutable_settings().delays = delays;
      const ir::Program program = random_pair(seed, {.products = seed % 3 == 0, .ragged = seed % 4 == 3});
      EXPECT_EQ(groups_of(testing::Lowered(ir::print(program)).schedule.plan).size(), 1u) << ir::print(program);
      const int64_t length = delays ? 30 : 200, rows = 1 + static_cast<int64_t>(seed % 5);
      // Both ragged scans have the symbols T, B and N, and batch sizes of their own that add up to N.
      const ir::Bindings bindings = {{"T", length}, {"B", rows}, {"N", rows + (length - 1) * (1 + rows / 2)}};
      compare(ir::print(program), testing::random_inputs(program, bindings, seed), bindings);
    }
}

TEST_F(SideBySide, DerivativesOfRandomStepsGiveTheBitsOfOneThread) {
  for (uint64_t seed = 0; seed < rounds() / 2 && !HasFatalFailure(); ++seed) {
    const ir::Program program = random_pair(seed, {.products = seed % 3 == 0});
    const ir::Program derivative = passes::vjp_of_primals(program, testing::floating_inputs(program));
    const ir::Bindings bindings = {{"T", 60}, {"B", 1 + static_cast<int64_t>(seed % 3)}};
    compare(ir::print(derivative), testing::random_inputs(derivative, bindings, seed), bindings);
  }
}

TEST_F(SideBySide, RandomStepsGiveTheResultsOfTheInterpreter) {
  for (uint64_t seed = 0; seed < rounds(); ++seed) {
    const ir::Program program =
        random_pair(seed, {.products = seed % 3 == 0, .ragged = seed % 4 == 3, .dtype = DType::kF64});
    const ir::Bindings bindings = {{"T", 4}, {"B", 3}, {"N", 7}};
    const std::vector<Array> inputs = testing::random_inputs(program, bindings, seed);
    mutable_settings().share_all = true;
    mutable_settings().guard = seed % 2 == 1;
    const auto found = testing::run_native(ir::print(program), inputs, bindings, runtime::own_team(2));
    EXPECT_LE(testing::difference(found, interpreter::evaluate(program, inputs)), 1e-9) << "seed " << seed;
  }
}

/// Layers of recurrences, each over the stack of the one before: by a product, elementwise or as it is, by `seed`.
std::string layers(uint64_t seed, DType dtype) {
  const uint64_t count = 2 + seed % 4;
  const int64_t units = std::vector<int64_t>{5, 16, 33, 48}[seed / 4 % 4];
  const std::string way = seed % 3 == 1 ? "reverse " : "";
  std::string text = "program @p(%h0: F[B,H], %x: F[T,B,H], %m: F[T,B,H]";
  for (uint64_t i = 0; i < count; ++i) text += fmt::format(", %v{0}: F[H,H], %w{0}: F[H,H]", i);
  text += ") {\n";
  std::string results, below = "%x";
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t kind = (seed + i) % 3;
    if (kind != 2) {
      text += kind == 0 ? fmt::format("%a{0} = matmul {1}, %v{0} {{transpose_b = true}} : F[T,B,H]\n", i, below)
                        : fmt::format("%a{0} = mul {1}, %m : F[T,B,H]\n", i, below);
      below = fmt::format("%a{}", i);
    }
    text += fmt::format(R"(%f{0}, %fs{0} = scan {1}length T carry(%h = %h0) xs(%xt = {2}) {{
         %r = matmul %h, %w{0} {{transpose_b = true}} : F[B,H]
         %b = add %r, %xt : F[B,H]
         %n = tanh %b : F[B,H]
         yield carry(%n) ys(%n)
       }} : F[B,H], F[T,B,H]
)",
                        i, way, below);
    below = fmt::format("%fs{}", i);
    results += fmt::format("%f{}, ", i);
  }
  text += fmt::format("return {}{} }}", results, below);
  auto replace = [&](char letter, const std::string& with) {
    for (size_t at = 0; (at = text.find(std::string(1, letter) + (letter == 'F' ? "[" : ""), at)) != std::string::npos;)
      text.replace(at, 1, with);
  };
  replace('H', std::to_string(units));
  replace('F', std::string(name_of(dtype)));
  return text;
}

TEST_F(SideBySide, LayersGiveTheBitsOfOneThread) {
  for (bool delays : {false, true})
    for (uint64_t seed = 0; seed < rounds() && !HasFatalFailure(); ++seed) {
      mutable_settings().delays = delays;
      mutable_settings().window = seed % 2 == 0 ? -1 : 1 + static_cast<int64_t>(seed % 7);
      const std::string text = layers(seed, DType::kF32);
      const ir::Program program = ir::parse(text);
      EXPECT_EQ(groups_of(testing::Lowered(text).schedule.plan), std::vector<size_t>{2 + seed % 4}) << text;
      const ir::Bindings bindings = {{"T", delays ? 30 : 300}, {"B", 1 + static_cast<int64_t>(seed % 3)}};
      compare(text, testing::random_inputs(program, bindings, seed), bindings);
    }
}

TEST_F(SideBySide, DerivativesOfLayersGiveTheBitsOfOneThread) {
  for (uint64_t seed = 0; seed < rounds() / 2 && !HasFatalFailure(); ++seed) {
    const ir::Program program = ir::parse(layers(seed, DType::kF32));
    const ir::Program derivative = passes::vjp_of_primals(program, testing::floating_inputs(program));
    const ir::Bindings bindings = {{"T", 60}, {"B", 1 + static_cast<int64_t>(seed % 3)}};
    compare(ir::print(derivative), testing::random_inputs(derivative, bindings, seed), bindings);
  }
}

TEST_F(SideBySide, LayersGiveTheResultsOfTheInterpreter) {
  for (uint64_t seed = 0; seed < rounds(); ++seed) {
    const std::string text = layers(seed, DType::kF64);
    const ir::Program program = ir::parse(text);
    const ir::Bindings bindings = {{"T", 7}, {"B", 2}};
    const std::vector<Array> inputs = testing::random_inputs(program, bindings, seed);
    mutable_settings().share_all = true;
    mutable_settings().guard = seed % 2 == 1;
    mutable_settings().window = static_cast<int64_t>(seed % 4) - 1;
    const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(2));
    EXPECT_LE(testing::difference(found, interpreter::evaluate(program, inputs)), 1e-9) << "seed " << seed;
  }
}

/// Whether two recurrences of H units run side by side for sizes T and B, by the sizes of their stages, and by which
/// members.
std::string choice(int64_t units, int64_t length, int64_t batch, int64_t threads) {
  const char* const text = R"(program @p(%h0: f32[B,H], %x: f32[T,B,H], %w: f32[H,H], %u: f32[H,H]) {
       %f, %fs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %r = matmul %h, %w {transpose_b = true} : f32[B,H]
         %b = add %r, %xt : f32[B,H]
         %n = tanh %b : f32[B,H]
         yield carry(%n) ys(%n)
       } : f32[B,H], f32[T,B,H]
       %g, %gs = scan reverse length T carry(%h = %h0) xs(%xt = %x) {
         %r = matmul %h, %u {transpose_b = true} : f32[B,H]
         %b = add %r, %xt : f32[B,H]
         %n = tanh %b : f32[B,H]
         yield carry(%n) ys(%n)
       } : f32[B,H], f32[T,B,H]
       return %fs, %gs, %f, %g })";
  const testing::Lowered lowered(testing::replaced(text, "H", std::to_string(units)));
  const runtime::Plan& plan = lowered.schedule.plan;
  EXPECT_EQ(plan.symbols, (std::vector<std::string>{"B", "T"}));
  const std::vector<int64_t> values = runtime::values_of(plan, {batch, length});
  const auto sizes = runtime::stage_sizes(plan, values, runtime::packs_of_products(plan, values), threads);
  std::string found;
  for (const StagePlan& stage : plan.stages) {
    const runtime::StageSizes& own = sizes[static_cast<size_t>(stage.index)];
    if (own.side_by_side) found = "side by side:";
    if (stage.kind == StagePlan::Kind::kScan && !found.empty()) found += fmt::format(" {}", own.member);
  }
  return found;
}

TEST_F(SideBySide, IsChosenWhereItIsFaster) {
  testing::on_each_machine([](const testing::Machine& machine) {
    mutable_settings().side_by_side = -1;
    EXPECT_EQ(choice(128, 100, 1, 2), "side by side: 0 1");
    EXPECT_EQ(choice(128, 100, 4, 2), "side by side: 0 1") << "weights are read by one thread instead of both";
    EXPECT_EQ(choice(128, 100, 1, 1), "");
    EXPECT_EQ(choice(128, 100, 64, 2), "") << "each thread has half of the rows";
    EXPECT_EQ(choice(128, 100, 64, 8), "") << "six threads would have nothing to do";
    // Weights too large for one core's cache, but not for two.
    const auto units = static_cast<int64_t>(std::sqrt(static_cast<double>(machine.private_cache()) * 5 / 4 / 4));
    EXPECT_EQ(choice(units / 16 * 16, 100, 1, 2), "") << units;
    mutable_settings().side_by_side = 0;
    EXPECT_EQ(choice(128, 100, 1, 2), "");
    mutable_settings().side_by_side = 1;
    EXPECT_EQ(choice(128, 100, 64, 8), "side by side: 0 1");
  });
}

TEST_F(SideBySide, IsChosenWhereTheCacheKeepsMostOfTheWeights) {
  const testing::TakenFor taken({"", runtime::Isa::kGeneric, "other", 512, 32 << 10});
  mutable_settings().side_by_side = -1;
  EXPECT_EQ(choice(304, 100, 1, 2), "side by side: 0 1");
  EXPECT_EQ(choice(320, 100, 1, 2), "side by side: 0 1") << "400 KiB, of which it keeps 384";
  EXPECT_EQ(choice(384, 100, 1, 2), "");
}

TEST(SideBySidePlan, WhatIsReadInWindowsOrLivesWithAGroupLivesAsLong) {
  runtime::Plan plan;
  for (int64_t i = 0; i < 7; ++i) plan.stages.emplace_back().index = i;
  plan.stages[2].side_by_side = {{1}, {0, 3}, {2}, {}};  // stages 2 and 5, with 3 before and 4 after them
  for (auto [first, last] : {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {3, 3}, {5, 6}, {6, 6}, {0, 6}}) {
    plan.buffers.emplace_back().first = first;
    plan.buffers.back().last = last;
  }
  plan.stages[3].windows = {{.stage = 2, .buffers = {2}, .reads = {0}}};  // which the windows of stage 3 read too
  auto all = [&](runtime::StageOrder order) {
    std::vector<std::pair<int64_t, int64_t>> found;
    for (const runtime::Life& life : runtime::lives(plan, order)) found.emplace_back(life.first, life.last);
    return found;
  };
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  using enum runtime::StageOrder;
  EXPECT_EQ(all(kInTurn), (Pairs{{0, 1}, {1, 2}, {3, 3}, {5, 6}, {6, 6}, {0, 6}}));
  EXPECT_EQ(all(kWindows), (Pairs{{0, 3}, {1, 2}, {3, 3}, {5, 6}, {6, 6}, {0, 6}}));
  EXPECT_EQ(all(kSideBySide), (Pairs{{0, 5}, {1, 5}, {2, 5}, {2, 6}, {6, 6}, {0, 6}}));
}

}  // namespace
}  // namespace weft::side_by_side_test
