// The state in a child of fork while other threads of its parent are busy: everything is free and whole (base/fork.h).
#include "base/fork.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <thread>

#include "adding.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "engine/native.h"
#include "in_child.h"
#include "ir/text/parser.h"

namespace weft::fork_test {
namespace {

using testing::adding;
using testing::adds;
using testing::in_child;

constexpr int kForks = 120;

/// Threads that call the functions again and again, each with the number of the call.
class Busy {
 public:
  explicit Busy(const std::vector<std::function<void(int64_t)>>& functions) {
    for (const auto& function : functions)
      threads_.emplace_back([this, function] {
        for (int64_t call = 0; !stop_; ++call) function(call);
      });
  }
  ~Busy() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

class ForkTest : public ::testing::Test {
 protected:
  ForkTest() { mutable_settings().cache_dir = ""; }
  ~ForkTest() override { mutable_settings().cache_dir = cache_before_; }

  std::string cache_before_ = settings().cache_dir;
};

TEST_F(ForkTest, ChildLaysOutSizesNotSeen) {
  auto executable = engine::compile(adding(1));
  auto sizes = [&](int64_t call) { EXPECT_TRUE(adds(*executable, 1, 1 + call % 1000)); };
  const Busy busy({sizes, sizes});
  for (int i = 0; i < kForks; ++i)
    ASSERT_EQ(in_child([&] { return adds(*executable, 1, 2000 + i) && adds(*executable, 1, 1 + i) ? 1 : 0; }), 1);
}

TEST_F(ForkTest, ChildCompilesRunsAndFrees) {
  auto fresh = [](int64_t number) {
    auto executable = engine::native(ir::parse(adding(number))).executable;
    return adds(*executable, number, 3);
  };
  auto compile = [&](int64_t call) {
    EXPECT_TRUE(fresh(call));
    std::this_thread::sleep_for(std::chrono::microseconds(500));  // a fork waits for its turn at the compiler too
  };
  const Busy busy({compile, compile});
  for (int i = 0; i < kForks / 2; ++i) ASSERT_EQ(in_child([&] { return fresh(1000000 + i) ? 1 : 0; }), 1);
}

TEST_F(ForkTest, ChildFindsProgramsAndFreesThoseOfItsParent) {
  auto known = [](int64_t call) { EXPECT_TRUE(adds(*engine::compile(adding(call % 8)), call % 8, 4)); };
  auto count = [](int64_t) { engine::count_fallback("fork test"); };
  auto of_parent = engine::native(ir::parse(adding(10))).executable;
  const Busy busy({known, count});
  for (int i = 0; i < kForks; ++i)
    ASSERT_EQ(in_child([&] {
                of_parent.reset();
                return adds(*engine::compile(adding(i % 8)), i % 8, 5) && engine::stats().compiled > 0 ? 1 : 0;
              }),
              1);
}

TEST_F(ForkTest, GrandchildrenToo) {
  auto compile = [](int64_t call) { engine::native(ir::parse(adding(call))); };
  const Busy busy({compile});
  auto compiles = [](int64_t number) { return adds(*engine::native(ir::parse(adding(number))).executable, number, 2); };
  for (int i = 0; i < 10; ++i)
    ASSERT_EQ(in_child([&] {
                EXPECT_TRUE(in_forked_child());
                return compiles(i) ? in_child([&] { return in_forked_child() && compiles(i + 100) ? 1 : 0; }) : 0;
              }),
              1);
  EXPECT_FALSE(in_forked_child());
}

TEST_F(ForkTest, RegisteredLocksAreHeldWhileForking) {
  static std::mutex& mutex = hold_across_fork(*new std::mutex, LockRank::kLayouts);
  static int64_t first = 0, second = 0;  // alike whenever the lock is free
  const Busy busy({[](int64_t call) {
    const std::lock_guard lock(mutex);
    first = call;
    std::this_thread::yield();
    second = call;
  }});
  for (int i = 0; i < kForks; ++i) ASSERT_EQ(in_child([] { return mutex.try_lock() && first == second ? 1 : 0; }), 1);
}

TEST_F(ForkTest, ForksWaitForThreadsInAGateThatAreInTogether) {
  static ForkGate& gate = *new ForkGate(LockRank::kCompiler);
  static std::atomic<int64_t> inside{0};
  {
    std::barrier both_are_in(2);
    auto meet = [&] {
      const ForkGate::Stay stay(gate);
      both_are_in.arrive_and_wait();  // for ever, if one kept the other out
    };
    std::jthread other(meet);
    meet();
  }
  auto stay_a_while = [](int64_t) {
    const ForkGate::Stay stay(gate);
    ++inside;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    --inside;
  };
  const Busy busy({stay_a_while, stay_a_while});
  for (int i = 0; i < kForks; ++i)
    ASSERT_EQ(in_child([] {
                const ForkGate::Stay stay(gate);
                return inside == 0 ? 1 : 0;
              }),
              1);
}

}  // namespace
}  // namespace weft::fork_test
