// Cores that other programs use too: when the engine believes it, and how calls then run.

#include "runtime/threads/contention.h"

#include <gtest/gtest.h>

#include "base/settings.h"
#include "ir/text/parser.h"
#include "native_run.h"
#include "random_program.h"

namespace weft::contention_test {
namespace {

using interpreter::Array;
using runtime::Clock;
using runtime::Contention;
using std::chrono::milliseconds;

TEST(Contention, OneReportIsNotBelieved) {
  Contention contention;
  Clock::time_point now = Clock::now();
  for (int i = 0; i < 10; ++i, now += milliseconds(21)) {
    contention.report(now);
    contention.report(now + std::chrono::microseconds(499));  // of the same wait
    EXPECT_FALSE(contention.is_high(now + milliseconds(1)));
  }
}

TEST(Contention, IsBelievedForTwiceAsLongEachTime) {
  Contention contention;
  Clock::time_point now = Clock::now();
  EXPECT_FALSE(contention.is_high(now));
  auto report_twice = [&] {
    contention.report(now);
    EXPECT_FALSE(contention.is_high(now));
    now += milliseconds(1);
    contention.report(now);
  };
  for (int64_t period : {10, 20, 40, 80, 160, 320, 640, 1000, 1000}) {
    report_twice();
    contention.report(now + milliseconds(period / 2));  // known already
    EXPECT_TRUE(contention.is_high(now + milliseconds(period - 1))) << period;
    now += milliseconds(period);
    EXPECT_FALSE(contention.is_high(now)) << period;
  }
  now += milliseconds(4000);
  report_twice();
  EXPECT_TRUE(contention.is_high(now + milliseconds(9)));
  EXPECT_FALSE(contention.is_high(now + milliseconds(10)));
}

/// Counts its regions.
struct CountingTeam : runtime::Team {
  int64_t size() const override { return runtime::own_team(2).size(); }
  void run(const std::function<void(int64_t, int64_t)>& member) override {
    ++regions;
    runtime::own_team(2).run(member);
  }
  int64_t regions = 0;
};

class Contended : public ::testing::Test {
 protected:
  void TearDown() override {
    mutable_settings().contention = -1;
    mutable_settings().delays = false;
  }

  using Bytes = std::vector<std::vector<std::byte>>;

  /// A call of the program, one row a step.
  Bytes run(int64_t length) {
    const ir::Bindings bindings = {{"T", length}, {"B", 1}};
    const ir::Program program = ir::parse(kProduct);
    Bytes all;
    for (const Array& each :
         testing::run_native(kProduct, testing::random_inputs(program, bindings, 1), bindings, team_))
      all.emplace_back(each.bytes.begin(), each.bytes.end());
    return all;
  }

  static constexpr const char* kProduct = R"(program @product(%x: f32[T,B,256], %h0: f32[B,256], %w: f32[256,256]) {
  %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {
    %p = matmul %h, %w : f32[B,256]
    %a = add %p, %xt : f32[B,256]
    %h1 = tanh %a : f32[B,256]
    yield carry(%h1) ys(%h1)
  } : f32[B,256], f32[T,B,256]
  return %hT, %ys
})";
  CountingTeam team_;
};

TEST_F(Contended, CallsOfLittleWorkHaveOneThread) {
  mutable_settings().contention = 0;
  const Bytes expected = run(100);
  EXPECT_EQ(team_.regions, 1);
  const int64_t before = runtime::contention().calls();
  mutable_settings().contention = 1;
  EXPECT_EQ(run(100), expected);
  EXPECT_EQ(team_.regions, 1);
  EXPECT_EQ(runtime::contention().calls(), before + 1);
}

TEST_F(Contended, MembersPartWhereverItShows) {
  for (int64_t length : {1, 4, 5, 12, 13, 300}) {
    mutable_settings().contention = 0;
    const Bytes expected = run(length);
    for (int64_t look : {1, 2, 3, 7}) {
      mutable_settings().contention = 1 + look;
      EXPECT_EQ(run(length), expected) << length << " steps, parted at look " << look;
    }
  }
}

TEST_F(Contended, LongWaitsAreSeen) {
  mutable_settings().delays = true;  // now and then a member sleeps, and the other one waits for it
  const int64_t before = runtime::contention().calls();
  for (int call = 0; call < 200 && runtime::contention().calls() == before; ++call) run(1000);
  EXPECT_GT(runtime::contention().calls(), before);
}

}  // namespace
}  // namespace weft::contention_test
