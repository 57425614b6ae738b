// The runtime on plans made by hand: stages that must run outside of the team's parallel regions, and failures there.

#include <gtest/gtest.h>

#include <atomic>

#include "base/settings.h"
#include "base/target.h"
#include "programs.h"
#include "runtime/plan/executable.h"

namespace weft::runtime::run_test {
namespace {

/// Three threads, and whether they are in a region.
class WatchedTeam : public Team {
 public:
  int64_t size() const override { return 3; }
  void run(const std::function<void(int64_t, int64_t)>& member) override {
    in_region = true;
    own_team(3).run(member);
    in_region = false;
  }
  std::atomic<bool> in_region = false;
};

class RunTest : public ::testing::Test {
 protected:
  RunTest() { mutable_settings().share_all = true; }
  ~RunTest() override { mutable_settings().share_all = false; }

  /// A stage that runs within a region. Counts its calls by all members.
  StagePlan inside() {
    StagePlan stage = call([this](const CallContext& context, std::string&) {
      EXPECT_TRUE(team_.in_region);
      EXPECT_EQ(context.threads, 3);
      ++calls_inside_;
      return true;
    });
    return stage;
  }

  StagePlan outside(int64_t fails_at = -1) {
    StagePlan stage = call([this, fails_at](const CallContext& context, std::string& error) {
      EXPECT_FALSE(team_.in_region);
      EXPECT_EQ(context.threads, 1);
      error = "no more";
      return calls_outside_++ != fails_at;
    });
    stage.outside = true;
    return stage;
  }

  StagePlan call(CallFunction function) {
    StagePlan stage;
    stage.kind = StagePlan::Kind::kCall;
    stage.index = stages_++;
    code_.callbacks.push_back(std::move(function));
    return stage;
  }

  StagePlan loop(int64_t length, std::vector<StagePlan> steps) {
    StagePlan stage;
    stage.kind = StagePlan::Kind::kLoop;
    stage.index = stages_++;
    code_.callbacks.emplace_back();
    stage.length.factor = length;
    for (const StagePlan& step : steps) stage.outside = stage.outside || step.outside;
    stage.control.regions.push_back(std::move(steps));
    return stage;
  }

  void run(std::vector<StagePlan> all) {
    Plan plan;
    plan.stages = std::move(all);
    plan.stage_count = stages_;
    NativeProgram(std::move(plan), code_).run({}, {}, {}, team_);
  }

  WatchedTeam team_;
  StageCode code_;
  int64_t stages_ = 0;
  std::atomic<int64_t> calls_inside_ = 0, calls_outside_ = 0;
};

TEST_F(RunTest, WhatMustBeOutsideOfRegionsIs) {
  run({inside(), outside(), inside(), inside(), loop(4, {inside(), outside(), loop(2, {inside(), inside()})}),
       loop(2, {outside(), loop(2, {outside()})}), inside()});
  EXPECT_EQ(calls_inside_, 3 * (1 + 2 + 4 * (1 + 2 * 2) + 1));
  EXPECT_EQ(calls_outside_, 1 + 4 + 2 * (1 + 2));
}

TEST_F(RunTest, AFailureOutsideEndsTheRun) {
  auto message = testing::error_of([&] { run({loop(5, {inside(), outside(2), inside()}), inside()}); });
  EXPECT_EQ(message, "no more");
  EXPECT_EQ(calls_outside_, 3);
  EXPECT_EQ(calls_inside_, 3 * (2 * 2 + 1));
}

/// Between calls outside of the team, the team is woken only for stages with enough work.
TEST_F(RunTest, LittleWorkBetweenSuchCallsWakesNobody) {
  mutable_settings().share_all = false;
  auto stage = [this](std::vector<int64_t> terms, bool in_region) {
    StagePlan made = call([this, in_region](const CallContext& context, std::string&) {
      EXPECT_EQ(team_.in_region, in_region);
      EXPECT_EQ(context.threads, in_region ? 3 : 1);
      ++calls_inside_;
      return true;
    });
    for (int64_t factor : terms) made.work.push_back({factor, {}});
    return made;
  };
  const int64_t enough = target::kWakeWork;
  Plan plan;
  plan.stages = {stage({enough - 1}, false),
                 outside(),
                 stage({enough / 2}, true),
                 stage({enough / 4, enough / 4}, true),
                 outside(),
                 stage({INT64_MAX}, true),
                 stage({INT64_MAX}, true),
                 outside(),
                 stage({}, false)};
  plan.stage_count = stages_;
  plan.work.push_back({INT64_MAX, {}});
  NativeProgram(std::move(plan), code_).run({}, {}, {}, team_);
  EXPECT_EQ(calls_inside_, 1 + 3 * 4 + 1);
  EXPECT_EQ(calls_outside_, 3);
}

TEST_F(RunTest, WithoutSuchCallsOneRegionRunsAll) {
  class OneRegion : public WatchedTeam {
   public:
    void run(const std::function<void(int64_t, int64_t)>& member) override {
      ++regions;
      WatchedTeam::run(member);
    }
    int64_t regions = 0;
  };
  OneRegion counted;
  Plan plan;
  auto count = [this](const CallContext&, std::string&) { return ++calls_inside_ > 0; };
  plan.stages = {call(count), loop(3, {call(count), loop(2, {call(count)})})};
  plan.stage_count = stages_;
  NativeProgram(std::move(plan), code_).run({}, {}, {}, counted);
  EXPECT_EQ(counted.regions, 1);
  EXPECT_EQ(calls_inside_, 3 * (1 + 3 * (1 + 2)));
}

}  // namespace
}  // namespace weft::runtime::run_test
