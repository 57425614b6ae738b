#include "runtime/memory/arena.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>
#include <random>
#include <thread>

namespace weft::runtime::arena_test {
namespace {

uintptr_t address(const Arena::Block& block) { return reinterpret_cast<uintptr_t>(block.data()); }

TEST(ArenaTest, BlocksAreAlignedAndLargeEnough) {
  Arena arena(int64_t{1} << 30);
  for (int64_t bytes :
       {1, 63, 64, 65, 255, 256, 257, 1000, 65536, 100000, 1 << 20, (4 << 20) + 1, 5'000'000, 33'333'333}) {
    const Arena::Block block = arena.acquire(bytes);
    ASSERT_NE(block.data(), nullptr);
    EXPECT_GE(block.capacity(), bytes);
    EXPECT_LE(block.capacity(), std::max<int64_t>(bytes * 5 / 4 + 4, 256));
    EXPECT_EQ(address(block) % (bytes >= 65536 ? 4096 : 64), 0U) << bytes;
    std::memset(block.data(), 0xAB, static_cast<size_t>(block.capacity()));
  }
}

TEST(ArenaTest, NothingIsNull) {
  Arena arena(1 << 20);
  EXPECT_EQ(arena.acquire(0).data(), nullptr);
  EXPECT_EQ(arena.idle_bytes(), 0);
}

TEST(ArenaTest, ACloseBlockIsNoMuchLargerOne) {
  Arena arena(int64_t{1} << 30);
  const uintptr_t large = address(arena.acquire(4'000'000));
  EXPECT_NE(address(arena.acquire_close(1'000'000)), large);
  EXPECT_GE(arena.idle_bytes(), 5'000'000) << "both are kept";
  EXPECT_EQ(address(arena.acquire_close(3'900'000)), large);
}

TEST(ArenaTest, ABlockIsUsedAgain) {
  Arena arena(int64_t{1} << 30);
  uintptr_t first = 0;
  {
    const Arena::Block block = arena.acquire(100'000);
    first = address(block);
    const Arena::Block other = arena.acquire(100'000);
    EXPECT_NE(address(other), first) << "two blocks at once are two blocks";
  }
  EXPECT_GE(arena.idle_bytes(), 200'000);
  const Arena::Block one = arena.acquire(100'000), two = arena.acquire(99'000);
  EXPECT_TRUE(address(one) == first || address(two) == first);
  EXPECT_EQ(arena.idle_bytes(), 0);
}

TEST(ArenaTest, OneBlockServesCallsOfLikeSizes) {
  Arena arena(int64_t{1} << 30);
  for (int call = 0; call < 3; ++call) {
    arena.acquire(3 << 20);
    arena.acquire(7 << 20);
  }
  EXPECT_EQ(arena.idle_bytes(), 7 << 20) << "the larger call's block serves the smaller, whose own was given back";
  arena.acquire(100'000);
  EXPECT_GT(arena.idle_bytes(), 7 << 20) << "a small call keeps to a small block";
  EXPECT_LT(arena.idle_bytes(), 8 << 20);
}

TEST(ArenaTest, AMovedBlockIsGivenBackOnce) {
  Arena arena(1 << 20);
  {
    Arena::Block block = arena.acquire(1000);
    Arena::Block moved = std::move(block);
    EXPECT_EQ(block.data(), nullptr);  // NOLINT: what a move leaves is part of the contract
    moved = arena.acquire(2000);
    EXPECT_EQ(arena.idle_bytes(), 1024);
  }
  EXPECT_EQ(arena.idle_bytes(), 1024 + 2048);
}

TEST(ArenaTest, KeepsNoMoreThanItsLimit) {
  Arena arena(1 << 20);
  {
    std::vector<Arena::Block> blocks;
    for (int i = 0; i < 40; ++i) blocks.push_back(arena.acquire(64 << 10));
    blocks.push_back(arena.acquire(2 << 20));
  }
  EXPECT_EQ(arena.idle_bytes(), 1 << 20);
  arena.trim();
  EXPECT_EQ(arena.idle_bytes(), 0);
}

TEST(ArenaTest, ZeroLimitKeepsNothing) {
  Arena arena(0);
  {
    const Arena::Block block = arena.acquire(1000);
  }
  EXPECT_EQ(arena.idle_bytes(), 0);
}

TEST(ArenaTest, TooMuchIsBadAlloc) {
  Arena arena(1 << 20);
  EXPECT_THROW(arena.acquire(int64_t{1} << 62), std::bad_alloc);
#if !defined(__SANITIZE_ADDRESS__)  // it ends the process instead
  EXPECT_THROW(arena.acquire(int64_t{1} << 55), std::bad_alloc);
#endif
}

TEST(ArenaTest, ThreadsNeverShareABlock) {
  Arena arena(8 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&arena, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 2000; ++i) {
        const int64_t bytes = std::uniform_int_distribution<int64_t>(1, 20000)(random);
        const Arena::Block block = arena.acquire(bytes);
        std::memset(block.data(), t, static_cast<size_t>(bytes));
        std::this_thread::yield();
        for (int64_t b = 0; b < bytes; ++b) ASSERT_EQ(static_cast<int>(block.data()[b]), t);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(ArenaTest, ProcessArenaWorksInAForkedChild) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) process_arena().acquire(1000);
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      _exit(process_arena().acquire(1000).data() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace weft::runtime::arena_test
