// Scans whose steps are not one function of machine code: with gathers, batched products, scans in them. Machine code
// against the interpreter, on one, two and three threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/settings.h"
#include "engine/engine.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "native_run.h"
#include "programs.h"
#include "random_program.h"

namespace weft::engine_loops_test {
namespace {

using interpreter::Array;
using testing::run_native;

/// Makes threads share even the smallest work, for as long as it lives.
class EngineLoops : public ::testing::Test {
 protected:
  EngineLoops() { mutable_settings().share_all = true; }
  ~EngineLoops() override { mutable_settings().share_all = false; }
};

void compare(const std::string& text, const std::vector<ir::Bindings>& sizes, double tolerance = 2e-5) {
  ir::Program program = ir::parse(text);
  for (const ir::Bindings& bindings : sizes) {
    std::vector<Array> inputs = testing::random_inputs(program, bindings, 7);
    std::vector<Array> want = interpreter::evaluate(program, inputs);
    std::string what = program.name;
    for (const auto& [symbol, value] : bindings) what += fmt::format(" {}={}", symbol, value);
    for (int64_t threads : {1, 2, 3})
      EXPECT_LE(testing::difference(run_native(text, inputs, bindings, runtime::own_team(threads)), want), tolerance)
          << what << " threads " << threads;
  }
}

/// The gradients of all floating inputs too.
void compare_with_gradients(const std::string& text, const std::vector<ir::Bindings>& sizes) {
  compare(text, sizes);
  ir::Program program = ir::parse(text);
  compare(ir::print(passes::vjp_of_primals(program, testing::floating_inputs(program))), sizes, 1e-4);
}

const std::vector<ir::Bindings> kSizes = {{{"T", 0}, {"B", 3}, {"S", 2}}, {{"T", 1}, {"B", 1}, {"S", 0}},
                                          {{"T", 4}, {"B", 3}, {"S", 5}}, {{"T", 5}, {"B", 0}, {"S", 1}},
                                          {{"T", 3}, {"B", 9}, {"S", 2}}, {{"T", 2}, {"B", 33}, {"S", 3}}};

TEST_F(EngineLoops, GatherInALoop) {
  for (const char* direction : {"", "reverse "}) {
    std::string text = std::string("program @gather") + (*direction ? "_back" : "") + R"((
        %table: f32[6,17], %i: i64[T,B], %h0: f32[B,17], %w: f32[17,17]) {
      %h, %ys, %gs = scan )" +
                       direction + R"(length T carry(%c = %h0) xs(%it = %i) {
        %t = tanh %c : f32[B,17]
        %g = gather %table, %it : f32[B,17]
        %a = matmul %t, %w : f32[B,17]
        %s = add %a, %g : f32[B,17]
        yield carry(%s) ys(%s, %t)
      } : f32[B,17], f32[T,B,17], f32[T,B,17]
      return %h, %ys, %gs
    })";
    std::vector<ir::Bindings> sizes = kSizes;
    for (ir::Bindings& each : sizes) each.erase("S");
    compare_with_gradients(text, sizes);
  }
}

/// The index comes from the carry, so that hoist cannot take the gather out.
const char* walk_text = R"(program @walk(%next: i64[6], %table: f32[6,3], %i0: i64[B]) {
  %i, %ys = scan length 7 carry(%i = %i0) xs() {
    %j = gather %next, %i : i64[B]
    %y = gather %table, %i : f32[B,3]
    yield carry(%j) ys(%y)
  } : i64[B], f32[7,B,3]
  return %i, %ys
})";

TEST_F(EngineLoops, CarriedIndex) {
  compare(walk_text, {{{"B", 1}}, {{"B", 5}}, {{"B", 0}}});
  EXPECT_EQ(testing::fallbacks("scan"), 0);
  EXPECT_EQ(testing::fallbacks("gather"), 0);
}

/// A program whose step writes a row of a cache. `more`: further lines of the step, which read the cache; `y`: the
/// value that the step yields.
std::string cache_text(const std::string& more, const std::string& y) {
  return R"(program @cache(%x: f32[T,B,9], %c0: f32[B,7,9], %at: i64[T]) {
    %c, %ys = scan length T carry(%c = %c0) xs(%xt = %x, %p = %at) {
      %k = reshape %xt : f32[B,1,9]
      %n = dynamic_update %c, %k, %p {dim = 1} : f32[B,7,9]
      )" +
         more +
         R"(
      yield carry(%n) ys()" +
         y + R"()
    } : f32[B,7,9], f32[T,B,9]
    return %c, %ys
  })";
}

TEST_F(EngineLoops, RowsOfACarryInPlace) {
  struct Step {
    std::string more, y;
    bool in_place;
  };
  const Step steps[] = {
      {"%s = reduce_sum %n {dims = [1]} : f32[B,9]", "%s", true},
      // The old cache is read before and at the place, and behind it.
      {"%q = dynamic_slice %n, %p {dim = 1, size = 1} : f32[B,1,9] %s = reshape %q : f32[B,9]", "%s", true},
      {"%d = sub %n, %c : f32[B,7,9] %s = reduce_sum %d {dims = [1]} : f32[B,9]", "%s", false},
      {"%r = reshape %c : f32[7*B,9] %i = cast %p : i32[] %j = reshape %i : i32[1] %g = gather %r, %j : f32[1,9]"
       " %h = reshape %g : f32[9] %w = broadcast %h {dims = [1]} : f32[B,9] %m = reduce_max %n {dims = [1]} : f32[B,9]"
       " %s = add %w, %m : f32[B,9]",
       "%s", false}};
  for (const Step& step : steps) {
    const std::string text = cache_text(step.more, step.y);
    compare_with_gradients(text, {{{"T", 5}, {"B", 2}}, {{"T", 0}, {"B", 3}}, {{"T", 1}, {"B", 1}}});
    const bool in_place = engine::compile(text)->plan_text().find("in_place: true") != std::string::npos;
    EXPECT_EQ(in_place, step.in_place) << text;
  }
  EXPECT_EQ(testing::fallbacks("dynamic_update"), 0);
  EXPECT_EQ(testing::fallbacks("dynamic_slice"), 0);
}

TEST_F(EngineLoops, WindowsOfATensorForAllSteps) {
  for (int64_t dim : {0, 1, 2})
    for (int64_t size : {1, 3}) {
      std::vector<std::string> sizes{"5", "6", "4"};
      sizes[static_cast<size_t>(dim)] = std::to_string(size);
      const std::string window = fmt::format("f32[{}]", fmt::join(sizes, ","));
      const std::string text = fmt::format(R"(program @windows(%x: f32[5,6,4], %h0: {0}, %at: i64[T]) {{
        %h, %ws = scan length T carry(%h = %h0) xs(%p = %at) {{
          %w = dynamic_slice %x, %p {{dim = {1}, size = {2}}} : {0}
          %v = mul %h, %w : {0}
          yield carry(%v) ys(%w)
        }} : {0}, f32[T,{3}]
        return %h, %ws
      }})",
                                           window, dim, size, fmt::join(sizes, ","));
      compare_with_gradients(text, {{{"T", 4}}, {{"T", 1}}, {{"T", 0}}});
      const std::string plan = engine::compile(text)->plan_text();
      EXPECT_EQ(plan.find("dynamic_slice"), std::string::npos) << plan;
      EXPECT_NE(plan.find("call: gather"), std::string::npos) << plan;
    }
}

TEST_F(EngineLoops, RowsOfACarryOfAWhile) {
  std::string text = R"(program @fill(%c0: f32[7,9], %count: i64[], %u: f32[1,9]) {
    %zero = constant {value = 0} : i64[]
    %c, %n = while carry(%c = %c0, %i = %zero) {
      %more = lt %i, %count : bool[]
      yield %more
    } do(%c, %i) {
      %one = constant {value = 1} : i64[]
      %old = dynamic_slice %c, %i {dim = 0, size = 1} : f32[1,9]
      %new = add %old, %u : f32[1,9]
      %d = dynamic_update %c, %new, %i {dim = 0} : f32[7,9]
      %j = add %i, %one : i64[]
      yield %d, %j
    } : f32[7,9], i64[]
    return %c, %n
  })";
  EXPECT_NE(engine::compile(text)->plan_text().find("in_place: true"), std::string::npos);
  for (double count : {0.0, 1.0, 2.0, 7.0}) {
    const std::vector<Array> inputs{testing::random_inputs(ir::parse(text), {}, 3)[0],
                                    Array::of(DType::kI64, {}, std::vector<double>{count}),
                                    testing::random_inputs(ir::parse(text), {}, 4)[2]};
    const std::vector<Array> want = interpreter::evaluate(ir::parse(text), inputs);
    for (int64_t threads : {1, 2, 3})
      EXPECT_LE(testing::difference(run_native(text, inputs, {}, runtime::own_team(threads)), want), 0) << count;
  }
}

TEST_F(EngineLoops, RowsThatAreNotThere) {
  const std::string text = cache_text("%s = reduce_sum %n {dims = [1]} : f32[B,9]", "%s");
  for (double bad : {-1.0, 7.0})
    for (int64_t threads : {1, 2, 3}) {
      const std::vector<Array> inputs{Array(DType::kF32, {3, 2, 9}), Array(DType::kF32, {2, 7, 9}),
                                      Array::of(DType::kI64, {3}, std::vector<double>{6, 0, bad})};
      EXPECT_EQ(
          testing::error_of([&] { run_native(text, inputs, {{"T", 3}, {"B", 2}}, runtime::own_team(threads)); }),
          fmt::format("dynamic_update: start {} is out of bounds for dimension 1 with size 7: 1 rows begin at 0..6",
                      bad));
    }
}

TEST_F(EngineLoops, AFailingStepEndsAllMembersAlike) {
  auto inputs = [](double bad) {
    return std::vector<Array>{Array::of(DType::kI64, {6}, std::vector<double>{1, 2, 3, bad, 5, 0}),
                              Array(DType::kF32, {6, 3}), Array::of(DType::kI64, {3}, std::vector<double>{0, 0, 1})};
  };
  for (int round = 0; round < 20; ++round)
    for (int64_t threads : {1, 2, 3}) {
      std::string message =
          testing::error_of([&] { run_native(walk_text, inputs(17), {{"B", 3}}, runtime::own_team(threads)); });
      EXPECT_NE(message.find("index 17 is out of bounds for dimension 0 with size 6"), std::string::npos) << message;
      EXPECT_NO_THROW(run_native(walk_text, inputs(4), {{"B", 3}}, runtime::own_team(threads)));
    }
}

TEST_F(EngineLoops, AScanInAScan) {
  // Weights of a norm near 1: with larger ones the steps are chaotic, and gradients have no digits in common.
  for (const char* direction : {"", "reverse "}) {
    std::string text = std::string("program @nested") + (*direction ? "_back" : "") + R"((
        %x: f32[T,B,16], %u: f32[S,16], %h0: f32[B,16], %w: f32[16,16]) {
      %quarter = constant {value = 0.25} : f32[16,16]
      %v = mul %w, %quarter : f32[16,16]
      %h, %ys, %all = scan )" +
                       direction + R"(length T carry(%c = %h0) xs(%xt = %x) {
        %k, %ks = scan )" +
                       direction + R"(length S carry(%z = %c) xs(%us = %u) {
          %ub = broadcast %us {dims = [1]} : f32[B,16]
          %a = matmul %z, %v : f32[B,16]
          %b = add %a, %ub : f32[B,16]
          %t = tanh %b : f32[B,16]
          yield carry(%t) ys(%t)
        } : f32[B,16], f32[S,B,16]
        %s = add %k, %xt : f32[B,16]
        %n = tanh %s : f32[B,16]
        yield carry(%n) ys(%n, %ks)
      } : f32[B,16], f32[T,B,16], f32[T,S,B,16]
      return %h, %ys, %all
    })";
    compare_with_gradients(text, kSizes);
  }
  EXPECT_EQ(testing::fallbacks("scan"), 0);
}

TEST_F(EngineLoops, AttentionOverAnEncodersOutputs) {
  std::string text = R"(program @attend(%enc: f32[B,S,8], %x: f32[T,B,4], %h0: f32[B,8], %w: f32[12,8], %v: f32[8,8]) {
    %h, %ys, %as = scan length T carry(%c = %h0) xs(%xt = %x) {
      %q = matmul %c, %v : f32[B,8]
      %q3 = broadcast %q {dims = [0, 2]} : f32[B,1,8]
      %e = batch_matmul %q3, %enc {transpose_b = true} : f32[B,1,S]
      %m = reduce_max %e {dims = [2]} : f32[B,1]
      %mb = broadcast %m {dims = [0, 1]} : f32[B,1,S]
      %d = sub %e, %mb : f32[B,1,S]
      %p = exp %d : f32[B,1,S]
      %t = reduce_sum %p {dims = [2]} : f32[B,1]
      %tb = broadcast %t {dims = [0, 1]} : f32[B,1,S]
      %a = div %p, %tb : f32[B,1,S]
      %r3 = batch_matmul %a, %enc : f32[B,1,8]
      %r = reshape %r3 : f32[B,8]
      %j = concat %xt, %r {dim = 1} : f32[B,12]
      %g = matmul %j, %w : f32[B,8]
      %n = tanh %g : f32[B,8]
      yield carry(%n) ys(%n, %a)
    } : f32[B,8], f32[T,B,8], f32[T,B,1,S]
    return %h, %ys, %as
  })";
  compare_with_gradients(text, {{{"T", 4}, {"B", 3}, {"S", 5}}, {{"T", 1}, {"B", 9}, {"S", 1}}});
  EXPECT_EQ(testing::fallbacks("scan"), 0);
}

TEST_F(EngineLoops, MatricesThatAreCarried) {
  // A product with weights of the step, a transposition, an integer division, a sum over the middle.
  std::string text = R"(program @matrices(%p0: f32[5,5], %n0: i32[B], %f: f32[5,5], %x: f32[T,5,5]) {
    %p, %n, %s = scan length T carry(%c = %p0, %k = %n0) xs(%q = %x) {
      %ft = transpose %c {perm = [1, 0]} : f32[5,5]
      %a = matmul %f, %c : f32[5,5]
      %b = matmul %a, %ft {transpose_b = true} : f32[5,5]
      %d = add %b, %q : f32[5,5]
      %e = tanh %d : f32[5,5]
      %two = constant {value = 2} : i32[B]
      %h = div %k, %two : i32[B]
      %sum = reduce_sum %e {dims = [0]} : f32[5]
      yield carry(%e, %h) ys(%sum)
    } : f32[5,5], i32[B], f32[T,5]
    return %p, %n, %s
  })";
  compare_with_gradients(text, {{{"T", 4}, {"B", 3}}, {{"T", 0}, {"B", 2}}, {{"T", 1}, {"B", 0}}});
}

TEST_F(EngineLoops, CapturedViewsAreCopiedOutsideOnce) {
  std::string text = R"(program @views(%x: f32[T,B,6], %k: f32[12], %h0: f32[B,6], %i0: i64[B]) {
    %h, %i = scan length T carry(%c = %h0, %i = %i0) xs(%xt = %x) {
      %b = broadcast %k {dims = [1]} : f32[4,12]
      %s = slice %b {dim = 1, start = 3, limit = 9} : f32[4,6]
      %g = gather %s, %i : f32[B,6]
      %a = add %c, %g : f32[B,6]
      %d = add %a, %xt : f32[B,6]
      %one = constant {value = 1} : i64[B]
      %j = sub %one, %i : i64[B]
      %half = slice %d {dim = 1, start = 0, limit = 3} : f32[B,3]
      %rest = slice %d {dim = 1, start = 3, limit = 6} : f32[B,3]
      %swapped = concat %rest, %half {dim = 1} : f32[B,6]
      yield carry(%swapped, %one) ys()
    } : f32[B,6], i64[B]
    return %h, %i
  })";
  compare_with_gradients(text, {{{"T", 4}, {"B", 3}}, {{"T", 0}, {"B", 2}}, {{"T", 1}, {"B", 1}}});
}

TEST_F(EngineLoops, WhatIsYieldedAsItCame) {
  // The carries change places, a y is a captured value, another the x, one comes twice.
  std::string text = R"(program @passed(%x: f32[T,B,3], %a0: f32[B,3], %b0: f32[B,3], %u: f32[4], %i: i64[B]) {
    %a, %b, %xs, %us, %gs, %hs = scan reverse length T carry(%a = %a0, %b = %b0) xs(%xt = %x) {
      %g = gather %b, %i : f32[B,3]
      yield carry(%b, %a) ys(%xt, %u, %g, %g)
    } : f32[B,3], f32[B,3], f32[T,B,3], f32[T,4], f32[T,B,3], f32[T,B,3]
    return %a, %b, %xs, %us, %gs, %hs
  })";
  compare_with_gradients(text,
                         {{{"T", 5}, {"B", 2}}, {{"T", 0}, {"B", 2}}, {{"T", 1}, {"B", 4}}, {{"T", 2}, {"B", 3}}});
}

std::string nested_program(int depth) {
  std::string open, close, value = "%h0";
  for (int i = 0; i < depth; ++i) {
    std::string n = std::to_string(i);
    open += "%r" + n + " = scan length 2 carry(%c" + n + " = " + value + ") xs() {\n%t" + n + " = tanh %c" + n +
            " : f32[B,4]\n";
    close = "%m" + n + " = sin %" + (i + 1 < depth ? "r" + std::to_string(i + 1) : "t" + n) +
            " : f32[B,4]\nyield carry(%m" + n + ") ys()\n} : f32[B,4]\n" + close;
    value = "%t" + n;
  }
  return "program @deep(%h0: f32[B,4]) {\n" + open + close + "return %r0\n}";
}

TEST_F(EngineLoops, ManyLoopsInsideEachOther) {
  for (int depth : {2, 3, 8}) compare_with_gradients(nested_program(depth), {{{"B", 3}}, {{"B", 40}}});
  EXPECT_EQ(testing::fallbacks("scan"), 0);
}

TEST_F(EngineLoops, AsDeepAsProgramsMayBe) {
  // With two steps in each loop there would be too many steps to run, so each loop has one step.
  const std::string text = nested_program(static_cast<int>(ir::kMaxRegionDepth) - 1);
  compare(testing::replaced(text, "length 2", "length 1"), {{{"B", 3}}});
}

TEST_F(EngineLoops, PackedSequencesInALoop) {
  std::string text = R"(program @packed(%x: f32[N,4], %batch_sizes: i64[T], %h0: f32[B,4], %u: f32[3,4], %w: f32[4,4]) {
    %o, %ys = scan length 3 carry(%c = %h0) xs(%us = %u) {
      %k, %zs = scan length T ragged(%batch_sizes, B, N) carry(%z = %c) xs(%xt = %x) {
        %a = matmul %z, %w : f32[B,4]
        %b = add %a, %xt : f32[B,4]
        %t = tanh %b : f32[B,4]
        yield carry(%t) ys(%t)
      } : f32[B,4], f32[N,4]
      %ub = broadcast %us {dims = [1]} : f32[B,4]
      %s = add %k, %ub : f32[B,4]
      yield carry(%s) ys(%zs)
    } : f32[B,4], f32[3,N,4]
    return %o, %ys
  })";
  std::vector<ir::Bindings> sizes = {{{"T", 5}, {"B", 3}, {"N", 9}}, {{"T", 1}, {"B", 7}, {"N", 7}}};
  compare_with_gradients(text, sizes);
}

TEST_F(EngineLoops, ABranchOfEachStep) {
  // The predicate changes from step to step; each branch calls, one yields a captured value, one the same value twice.
  std::string text = R"(program @branches(%x: f32[T,B,6], %u: f32[T], %h0: f32[B,6], %i: i64[B], %w: f32[6,6]) {
    %h, %ys, %zs = scan length T carry(%c = %h0) xs(%xt = %x, %ut = %u) {
      %zero = constant {value = 0} : f32[]
      %p = gt %ut, %zero : bool[]
      %a, %b = cond %p then {
        %g = gather %c, %i : f32[B,6]
        %m = matmul %g, %w : f32[B,6]
        %t = tanh %m : f32[B,6]
        yield %t, %t
      } else {
        %s = sin %c : f32[B,6]
        yield %s, %xt
      } : f32[B,6], f32[B,6]
      %d = add %a, %b : f32[B,6]
      %n = tanh %d : f32[B,6]
      yield carry(%n) ys(%a, %b)
    } : f32[B,6], f32[T,B,6], f32[T,B,6]
    return %h, %ys, %zs
  })";
  compare_with_gradients(text, {{{"T", 7}, {"B", 3}}, {{"T", 0}, {"B", 2}}, {{"T", 1}, {"B", 1}}});
  EXPECT_EQ(testing::fallbacks("cond"), 0);
}

TEST_F(EngineLoops, RepeatsUntilTheConditionFails) {
  // Collatz' steps, with a loop inside that takes as many steps as the number at hand.
  std::string text = R"(program @collatz(%n0: i64[], %h0: f32[B,5], %limit: i64[]) {
    %n, %steps, %h = while carry(%n = %n0, %k = %limit, %h = %h0) {
      %one = constant {value = 1} : i64[]
      %p = ne %n, %one : bool[]
      yield %p
    } do(%m, %j, %g) {
      %two = constant {value = 2} : i64[]
      %one2 = constant {value = 1} : i64[]
      %three = constant {value = 3} : i64[]
      %half = div %m, %two : i64[]
      %twice = mul %half, %two : i64[]
      %even = eq %twice, %m : bool[]
      %next = cond %even then {
        yield %half
      } else {
        %t = mul %m, %three : i64[]
        %u = add %t, %one2 : i64[]
        yield %u
      } : i64[]
      %counted = add %j, %one2 : i64[]
      %r, %z = while carry(%r = %m, %z = %g) {
        %positive = gt %r, %limit : bool[]
        yield %positive
      } do(%q, %y) {
        %less = sub %q, %one2 : i64[]
        %v = sin %y : f32[B,5]
        yield %less, %v
      } : i64[], f32[B,5]
      yield %next, %counted, %z
    } : i64[], i64[], f32[B,5]
    return %n, %steps, %h
  })";
  ir::Program program = ir::parse(text);
  for (int64_t b : {0, 1, 7})
    for (double n : {1.0, 2.0, 7.0, 12.0}) {
      ir::Bindings bindings{{"B", b}};
      std::vector<Array> inputs = testing::random_inputs(program, bindings, 5);
      inputs[0] = Array::of(DType::kI64, {}, std::vector<double>{n});
      inputs[2] = Array::of(DType::kI64, {}, std::vector<double>{0});
      std::vector<Array> want = interpreter::evaluate(program, inputs);
      for (int64_t threads : {1, 2, 3})
        EXPECT_LE(testing::difference(run_native(text, inputs, bindings, runtime::own_team(threads)), want), 2e-5)
            << "n " << n << " B " << b << " threads " << threads;
    }
  EXPECT_EQ(testing::fallbacks("while"), 0);
}

TEST_F(EngineLoops, WhatABranchNotTakenWouldDoDoesNotHappen) {
  std::string text = R"(program @guarded(%p: bool[], %table: f32[4,3], %i: i64[B]) {
    %r = cond %p then {
      %g = gather %table, %i : f32[B,3]
      yield %g
    } else {
      %zero = constant {value = 0} : f32[B,3]
      yield %zero
    } : f32[B,3]
    return %r
  })";
  for (int64_t threads : {1, 2, 3})
    for (bool taken : {false, true}) {
      std::vector<Array> inputs{Array::of(DType::kBool, {}, std::vector<double>{taken ? 1.0 : 0.0}),
                                Array(DType::kF32, {4, 3}), Array::of(DType::kI64, {2}, std::vector<double>{0, 4})};
      std::string message =
          testing::error_of([&] { run_native(text, inputs, {{"B", 2}}, runtime::own_team(threads)); });
      EXPECT_EQ(message, taken ? "index 4 is out of bounds for dimension 0 with size 4" : "no error");
    }
}

TEST_F(EngineLoops, TheSameBitsOnAnyNumberOfThreads) {
  std::string text = R"(program @bits(%x: f32[T,B,16], %h0: f32[B,16], %w: f32[16,16], %i: i64[B]) {
    %h, %ys = scan length T carry(%c = %h0) xs(%xt = %x) {
      %g = gather %c, %i : f32[B,16]
      %a = matmul %g, %w : f32[B,16]
      %s = reduce_sum %a {dims = [1]} : f32[B]
      %sb = broadcast %s {dims = [0]} : f32[B,16]
      %b = add %sb, %xt : f32[B,16]
      %t = tanh %b : f32[B,16]
      yield carry(%t) ys(%t)
    } : f32[B,16], f32[T,B,16]
    return %h, %ys
  })";
  ir::Bindings bindings{{"T", 6}, {"B", 24}};
  std::vector<Array> inputs = testing::random_inputs(ir::parse(text), bindings, 3);
  std::vector<Array> first = run_native(text, inputs, bindings, runtime::own_team(1));
  for (int64_t threads : {2, 3, 2, 3})
    for (size_t k = 0; k < first.size(); ++k)
      ASSERT_EQ(first[k].bytes, run_native(text, inputs, bindings, runtime::own_team(threads))[k].bytes);
}

}  // namespace
}  // namespace weft::engine_loops_test
