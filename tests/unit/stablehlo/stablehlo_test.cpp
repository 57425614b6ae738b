#include <gtest/gtest.h>

#include <functional>

#include "ir/binder.h"
#include "ir/text/call_text.h"
#include "ir/text/parser.h"
#include "stablehlo/emitter.h"
#include "stablehlo/write.h"

namespace weft::stablehlo::stablehlo_test {
namespace {

std::string written(std::string_view text, const std::vector<Sizes>& sizes) {
  const ir::Program program = ir::parse(text);
  return write(program, ir::bind(program, sizes));
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(StableHlo, SizesAreNumbers) {
  EXPECT_EQ(written("program @twice(%x: f32[B,2]) { %y = add %x, %x\n return %y in %x }", {{3, 2}}), R"(module @twice {
  func.func public @main(%arg0: tensor<3x2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<3x2xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<3x2xf32>
    return %0 : tensor<3x2xf32>
  }
}
)");
}

TEST(StableHlo, AScanIsAWhileThatCounts) {
  EXPECT_EQ(written(R"(program @sum(%x: f64[T], %s0: f64[]) {
    %s = scan length T carry(%a = %s0) xs(%xt = %x) {
      %n = add %a, %xt
      yield carry(%n) ys()
    } : f64[]
    return %s
  })",
                    {{4}, {}}),
            R"(module @sum {
  func.func public @main(%arg0: tensor<4xf64>, %arg1: tensor<f64>) -> tensor<f64> {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %4:3 = stablehlo.while(%1 = %0, %2 = %arg1, %3 = %arg0) : tensor<i32>, tensor<f64>, tensor<4xf64>
    cond {
      %5 = stablehlo.constant dense<4> : tensor<i32>
      %6 = stablehlo.compare LT, %1, %5, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %6 : tensor<i1>
    } do {
      %7 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %1, %7 : tensor<i32>
      %9 = stablehlo.dynamic_slice %3, %1, sizes = [1] : (tensor<4xf64>, tensor<i32>) -> tensor<1xf64>
      %10 = stablehlo.reshape %9 : (tensor<1xf64>) -> tensor<f64>
      %11 = stablehlo.add %2, %10 : tensor<f64>
      stablehlo.return %8, %11, %3 : tensor<i32>, tensor<f64>, tensor<4xf64>
    }
    return %4#1 : tensor<f64>
  }
}
)");
}

TEST(StableHlo, CallsOfPyTorchAreNamed) {
  const char* text = R"--(program @greatest(%x: f32[B]) {
    %y, %i = extern %x {call = "aten.cummax.default(%0, -1)"} : f32[B], i64[B]
    return %y
  })--";
  EXPECT_EQ(
      message_of([&] { written(text, {{3}}); }),
      "stablehlo: the call of PyTorch aten.cummax.default(%0, -1) has no lowering: StableHLO has no ops for it here");
}

TEST(StableHlo, WhichMinorFailedIsNotSaid) {
  const char* text = R"--(program @factors(%x: f32[B,2,2]) {
    %y, %info = extern %x {call = "aten.linalg_cholesky_ex.default(%0, false, true)"} : f32[B,2,2], i32[B]
    return %info
  })--";
  EXPECT_EQ(message_of([&] { written(text, {{3, 2, 2}}); }),
            "stablehlo: the program reads a result of aten.linalg_cholesky_ex.default(%0, false, true), of which "
            "StableHLO has the factors alone");
}

TEST(StableHlo, RowsOfARaggedStepAreNotReversed) {
  const char* text = R"(program @turned(%x: f32[N], %sizes: i64[T], %h: f32[B]) {
    %ys = scan length T ragged(%sizes, B, N) carry() xs(%xt = %x) {
      %y = reverse %xt {dim = 0}
      yield carry() ys(%y)
    } : f32[N]
    return %ys
  })";
  EXPECT_EQ(
      message_of([&] { written(text, {{5}, {2}, {3}}); }),
      "stablehlo: 'reverse' along the rows of a ragged scan has no lowering, since their number differs from step "
      "to step");
}

TEST(StableHlo, ArgumentsOfACall) {
  const ir::CallText call("stablehlo", "aten.f.default(%0, None, [1, 2*size(0, 1)], [true, false], -3, 'a, (b')",
                          {{7, 5}});
  EXPECT_EQ(call.name(), "aten.f.default");
  EXPECT_EQ(call.count(), 6u);
  EXPECT_EQ(call.operand(0), 0u);
  EXPECT_EQ(call.operand(1), std::nullopt);
  EXPECT_EQ(call.integers(2), (Sizes{1, 10}));
  EXPECT_EQ(call.flags(3), (std::vector<bool>{true, false}));
  EXPECT_EQ(call.integer(4), -3);
  EXPECT_EQ(message_of([&] { call.flag(4); }),
            "stablehlo: the call of PyTorch " + call.text() + " has no lowering: an argument is no bool");
  EXPECT_EQ(message_of([&] { call.integer(9); }),
            "stablehlo: the call of PyTorch " + call.text() + " has no lowering: it has too few arguments");
}

}  // namespace
}  // namespace weft::stablehlo::stablehlo_test
