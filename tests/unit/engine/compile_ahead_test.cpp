// Programs that threads of their own compile before they are called.
#include "engine/compile_ahead.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "adding.h"
#include "base/error.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "in_child.h"
#include "ir/text/parser.h"

namespace weft::engine::compile_ahead_test {
namespace {

using testing::adds;
using testing::in_child;

/// A program that differs from the programs of all other numbers.
ir::Program program(int64_t number) { return ir::parse(testing::adding(number)); }

/// At the end, since from then on none begins.
class EndsThem : public ::testing::Environment {
  void TearDown() override {
    end_compilations_ahead();
    EXPECT_EQ(CompilationAhead::begin(program(0)), nullptr);
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
    const auto ahead = CompilationAhead::begin(program(number));
    ASSERT_NE(ahead, nullptr);
    std::vector<std::shared_ptr<const Executable>> taken(kThreads);
    {
      std::vector<std::jthread> threads;
      for (auto& each : taken) threads.emplace_back([&] { each = ahead->take(); });
    }
    ASSERT_TRUE(taken[0] && adds(*taken[0], number, 3));
    for (const auto& each : taken) ASSERT_EQ(each, taken[0]);
    ASSERT_EQ(stats().compiled, before + 1);
  }
}

TEST_F(CompileAhead, WhatIsNeverTakenIsNotCounted) {
  const int64_t before = stats().compiled;
  std::vector<std::shared_ptr<CompilationAhead>> begun;
  for (int64_t number = 100; number < 110; ++number) begun.push_back(CompilationAhead::begin(program(number)));
  begun[3]->take();
  EXPECT_EQ(stats().compiled, before + 1);
  for (const auto& each : begun) each->take();  // before settings change
  EXPECT_EQ(stats().compiled, before + 10);
}

TEST_F(CompileAhead, OneThatFailsIsNull) {
  mutable_settings().isa = "mmx";  // no program compiles
  EXPECT_THROW(compile(program(200)), Error);
  const int64_t before = stats().compiled;
  EXPECT_EQ(CompilationAhead::begin(program(200))->take(), nullptr);
  EXPECT_EQ(stats().compiled, before);
}

TEST_F(CompileAhead, AChildTakesWhatIsThereAndBeginsNone) {
  for (int64_t number = 300; number < 360; ++number) {
    const auto ahead = CompilationAhead::begin(program(number));
    std::this_thread::sleep_for(std::chrono::microseconds(250 * (number % 40)));
    ASSERT_EQ(in_child([&] {
                if (CompilationAhead::begin(program(number)) != nullptr) return 2;
                auto taken = ahead->take();
                if (taken == nullptr) taken = compile(program(number));
                return adds(*taken, number, 3) ? 1 : 0;
              }),
              1);
    ASSERT_TRUE(adds(*ahead->take(), number, 3));
  }
}

}  // namespace
}  // namespace weft::engine::compile_ahead_test
