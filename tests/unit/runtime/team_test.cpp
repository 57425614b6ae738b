#include "runtime/threads/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <locale>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "in_child.h"
#include "runtime/kernels/kernels.h"
#include "runtime/threads/cores.h"
#include "runtime/threads/denormals.h"

namespace weft::runtime::team_test {
namespace {

using testing::in_child;

TEST(TeamTest, SerialTeamRunsOnce) {
  SerialTeam team;
  int64_t calls = 0;
  team.run([&](int64_t thread, int64_t threads) {
    EXPECT_EQ(thread, 0);
    EXPECT_EQ(threads, 1);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST(TeamTest, EveryMemberRunsExactlyOnce) {
  for (int64_t size : {1, 2, 3, 7}) {
    Team& team = own_team(size);
    EXPECT_EQ(team.size(), size);
    for (int repeat = 0; repeat < 200; ++repeat) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(size));
      team.run([&](int64_t thread, int64_t threads) {
        EXPECT_EQ(threads, size);
        calls[static_cast<size_t>(thread)]++;
      });
      for (const auto& count : calls) ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST(TeamTest, MembersRunAtTheSameTime) {
  Team& team = own_team(4);
  SpinBarrier barrier(4);  // nobody passes it if a member waits for another to end
  std::atomic<int> passed{0};
  team.run([&](int64_t, int64_t threads) {
    ASSERT_EQ(threads, 4);
    barrier.arrive_and_wait();
    passed++;
  });
  EXPECT_EQ(passed.load(), 4);
}

TEST(TeamTest, SameSizeIsTheSameTeam) {
  EXPECT_EQ(&own_team(3), &own_team(3));
  EXPECT_EQ(&own_team(), &own_team(usable_cores()));
}

TEST(TeamTest, WakesUpAfterSleeping) {
  Team& team = own_team(3);
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::atomic<int> calls{0};
    team.run([&](int64_t, int64_t) { calls++; });
    EXPECT_EQ(calls.load(), 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
}

TEST(TeamTest, CallersOfOneTeamTakeTurns) {
  Team& team = own_team(3);
  std::atomic<int> inside{0};
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 100; ++repeat) {
        team.run([&](int64_t, int64_t) {
          EXPECT_LE(++inside, 3);
          total++;
          inside--;
        });
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(total.load(), 4 * 100 * 3);
}

TEST(TeamTest, RegionInsideARegionIsSerial) {
  Team& team = own_team(3);
  std::atomic<int> inner{0};
  team.run([&](int64_t, int64_t) {
    team.run([&](int64_t thread, int64_t threads) {
      EXPECT_EQ(thread, 0);
      EXPECT_EQ(threads, 1);
      inner++;
    });
  });
  EXPECT_EQ(inner.load(), 3);
}

TEST(TeamTest, WorkersFollowTheCallersDenormalMode) {
  const DenormalMode before = DenormalMode::of_this_thread();
#if defined(__x86_64__)
  const unsigned control = _mm_getcsr();
  for (bool flush : {true, false}) {
    _mm_setcsr(flush ? control | 0x8040 : control & ~0x8040U);
    own_team(3).run([&](int64_t, int64_t) { EXPECT_EQ(DenormalMode::of_this_thread().flushes(), flush); });
    {
      const ScopedDenormalMode scoped(before);
      EXPECT_EQ(DenormalMode::of_this_thread().flushes(), before.flushes());
    }
    EXPECT_EQ(DenormalMode::of_this_thread().flushes(), flush);
  }
  _mm_setcsr(control);
#else
  EXPECT_FALSE(before.flushes());
#endif
}

int serial_calls(Team& team) {
  int calls = 0;
  team.run([&](int64_t thread, int64_t threads) { calls += thread == 0 && threads == 1 ? 1 : 100; });
  return team.size() == 1 ? calls : -1;
}

TEST(TeamTest, ForkedChildRunsSeriallyAndTheParentGoesOn) {
  Team& team = own_team(3);
  std::atomic<int> calls{0};
  team.run([&](int64_t, int64_t) { calls++; });
  EXPECT_EQ(in_child([&] { return serial_calls(team); }), 1);
  EXPECT_EQ(in_child([&] { return serial_calls(own_team()); }), 1);
  team.run([&](int64_t, int64_t) { calls++; });
  EXPECT_EQ(calls.load(), 6);
}

TEST(TeamTest, ForkWhileAnotherThreadIsInARegion) {
  Team& team = own_team(3);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) team.run([](int64_t, int64_t) {});
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(in_child([&] { return serial_calls(team); }), 1);
  stop = true;
  other.join();
}

TEST(SpinBarrierTest, NobodyIsAPhaseAhead) {
  for (int64_t members : {1, 2, 5}) {
    SpinBarrier barrier(members);
    std::vector<int64_t> at(static_cast<size_t>(members), 0);  // plain memory: the barrier must order it
    std::vector<std::thread> threads;
    for (int64_t member = 0; member < members; ++member) {
      threads.emplace_back([&, member] {
        for (int64_t step = 1; step <= 2000; ++step) {
          at[static_cast<size_t>(member)] = step;
          barrier.arrive_and_wait();
          for (int64_t other : at) ASSERT_EQ(other, step);
          barrier.arrive_and_wait();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST(CoresTest, QuotaIsRoundedUp) {
  EXPECT_EQ(quota_cores("200000 100000"), 2);
  EXPECT_EQ(quota_cores("150000 100000"), 2);
  EXPECT_EQ(quota_cores("5000 100000"), 1);
  EXPECT_EQ(quota_cores("max 100000"), std::nullopt);
  EXPECT_EQ(quota_cores("-1 100000"), std::nullopt);
  EXPECT_EQ(quota_cores(""), std::nullopt);
  EXPECT_EQ(quota_cores("100000 0"), std::nullopt);
}

TEST(CoresTest, QuotaIsReadAlikeInEveryLocale) {
  struct Blanks : std::numpunct<char> {
    char do_thousands_sep() const override { return ' '; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Blanks));
  EXPECT_EQ(quota_cores("200000 100000"), 2);
  std::locale::global(before);
}

TEST(CoresTest, CachesAreAsTheKernelDescribesThem) {
  const std::filesystem::path folder = ::testing::TempDir() + "weft_caches_test";
  auto describe = [&](int index, const char* level, const char* type, const char* size) {
    const std::filesystem::path at = folder / ("index" + std::to_string(index));
    std::filesystem::create_directories(at);
    std::ofstream(at / "level") << level << "\n";
    std::ofstream(at / "type") << type << "\n";
    std::ofstream(at / "size") << size << "\n";
  };
  EXPECT_EQ(described_cache_bytes(folder, 2), std::nullopt);
  describe(0, "1", "Data", "48K");
  describe(1, "1", "Instruction", "32K");
  describe(2, "2", "Instruction", "512K");
  describe(3, "2", "Unified", "1024K");
  describe(4, "3", "Unified", "32768K");
  EXPECT_EQ(described_cache_bytes(folder, 1), int64_t{48} << 10);
  EXPECT_EQ(described_cache_bytes(folder, 2), int64_t{1} << 20);
  EXPECT_EQ(described_cache_bytes(folder, 3), int64_t{32} << 20);
  EXPECT_EQ(described_cache_bytes(folder, 4), std::nullopt);
  for (const char* size : {"", "0K", "-1K", "32M", "many", "99999999999999999999K"}) {
    describe(4, "3", "Unified", size);
    EXPECT_EQ(described_cache_bytes(folder, 3), std::nullopt) << size;
  }
  std::filesystem::remove_all(folder);
}

TEST(CoresTest, SettingsSayWhatChoicesTakeTheMachineFor) {
  const Settings before = settings();
  mutable_settings().private_cache_bytes = 512 << 10;
  mutable_settings().shared_cache_bytes = 32 << 20;
  EXPECT_EQ(private_cache_bytes(), 512 << 10);
  EXPECT_EQ(shared_cache_bytes(), 32 << 20);
  auto rows = [](const char* core, Isa isa) {
    mutable_settings().core = core;
    return rows_while_streaming(isa);
  };
  EXPECT_EQ(rows("intel", Isa::kGeneric), 6);
  EXPECT_EQ(rows("intel", Isa::kAvx512), 12);
  EXPECT_EQ(rows("zen1", Isa::kAvx2), 4);
  EXPECT_EQ(byte_products(Isa::kAvx2), ByteProducts::kSlower);
  EXPECT_EQ(rows("zen5", Isa::kAvx2), 4);
  EXPECT_EQ(byte_products(Isa::kAvx2), ByteProducts::kFewRowsOnly);
  EXPECT_EQ(rows("zen5", Isa::kAvx512), 7);
  EXPECT_EQ(rows("other", Isa::kAvx512), 4);
  mutable_settings().core = "zen9";
  try {
    core_kind();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "WEFT_CORE=zen9: unknown core; known are intel, zen1, zen5, other");
  }
  mutable_settings() = before;
}

TEST(CoresTest, LeastQuotaOfTheGroupsAboveCounts) {
  const std::filesystem::path root = ::testing::TempDir() + "weft_cores_test";
  std::filesystem::create_directories(root / "a/b");
  std::ofstream(root / "a/cpu.max") << "300000 100000\n";
  std::ofstream(root / "a/b/cpu.max") << "max 100000\n";
  EXPECT_EQ(group_quota_cores(root, "/a/b"), 3);
  EXPECT_EQ(group_quota_cores(root, "/"), std::nullopt);
  EXPECT_EQ(group_quota_cores(root, "/a/c"), 3);
  std::filesystem::remove(root / "a/b/cpu.max");
  std::ofstream(root / "a/b/cpu.cfs_quota_us") << "150000\n";
  std::ofstream(root / "a/b/cpu.cfs_period_us") << "100000\n";
  EXPECT_EQ(group_quota_cores(root, "/a/b"), 2);
  std::filesystem::remove_all(root);
}

TEST(CoresTest, AtLeastOneCore) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace weft::runtime::team_test
