// Programs that threads of their own compile before they are called.
#include "engine/compile_ahead.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "in_child.h"
#include "ir/parser.h"

namespace weft::engine {
namespace {

using testing::in_child;

/// y = x + number, as no other program has it.
ir::Program adding(int64_t number) {
  return ir::parse(
      fmt::format("program @ahead(%x: f32[N]) {{ %c = constant {{value = {}.0}} : f32[] "
                  "%k = broadcast %c {{dims = []}} : f32[N] %y = add %x, %k : f32[N] return %y }}",
                  number));
}

bool adds(const Executable& executable, int64_t number) {
  std::vector<float> x(3, 1), y(3);
  std::vector<int64_t> sizes{3};
  runtime::TensorRef in{x.data(), DType::kF32, sizes}, out{y.data(), DType::kF32, sizes};
  executable.run({&in, 1}, {&out, 1}, runtime::own_team(1));
  return y == std::vector<float>(3, static_cast<float>(number + 1));
}

/// At the end, since from then on none begins.
class EndsThem : public ::testing::Environment {
  void TearDown() override {
    end_compilations_ahead();
    EXPECT_EQ(CompilationAhead::begin(adding(0)), nullptr);
  }
};
[[maybe_unused]] const auto* const kEnd = ::testing::AddGlobalTestEnvironment(new EndsThem);

class CompileAhead : public ::testing::Test {
 protected:
  CompileAhead() { mutable_settings().cache_dir = ""; }
  ~CompileAhead() override { mutable_settings() = before_; }

  Settings before_ = settings();
};

TEST_F(CompileAhead, AllWhoTakeItGetTheSameAndItIsCountedOnce) {
  constexpr int kThreads = 12;
  for (int64_t number = 0; number < 40; ++number) {
    const int64_t before = stats().compiled;
    const auto ahead = CompilationAhead::begin(adding(number));
    ASSERT_NE(ahead, nullptr);
    std::vector<std::shared_ptr<const Executable>> taken(kThreads);
    {
      std::vector<std::jthread> threads;
      for (auto& each : taken) threads.emplace_back([&] { each = ahead->take(); });
    }
    ASSERT_TRUE(taken[0] && adds(*taken[0], number));
    for (const auto& each : taken) ASSERT_EQ(each, taken[0]);
    ASSERT_EQ(stats().compiled, before + 1);
  }
}

TEST_F(CompileAhead, WhatIsNeverTakenIsNotCounted) {
  const int64_t before = stats().compiled;
  std::vector<std::shared_ptr<CompilationAhead>> begun;
  for (int64_t number = 100; number < 110; ++number) begun.push_back(CompilationAhead::begin(adding(number)));
  begun[3]->take();
  EXPECT_EQ(stats().compiled, before + 1);
  for (const auto& each : begun) each->take();  // before settings change
  EXPECT_EQ(stats().compiled, before + 10);
}

TEST_F(CompileAhead, OneThatFailsIsNull) {
  mutable_settings().isa = "mmx";  // no program compiles
  EXPECT_THROW(compile(adding(200)), Error);
  const int64_t before = stats().compiled;
  EXPECT_EQ(CompilationAhead::begin(adding(200))->take(), nullptr);
  EXPECT_EQ(stats().compiled, before);
}

TEST_F(CompileAhead, AChildTakesWhatIsThereAndBeginsNone) {
  for (int64_t number = 300; number < 360; ++number) {
    const auto ahead = CompilationAhead::begin(adding(number));
    std::this_thread::sleep_for(std::chrono::microseconds(250 * (number % 40)));
    ASSERT_EQ(in_child([&] {
                if (CompilationAhead::begin(adding(number)) != nullptr) return 2;
                auto taken = ahead->take();
                if (taken == nullptr) taken = compile(adding(number));
                return adds(*taken, number) ? 1 : 0;
              }),
              1);
    ASSERT_TRUE(adds(*ahead->take(), number));
  }
}

}  // namespace
}  // namespace weft::engine
