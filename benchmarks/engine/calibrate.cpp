// Measures what bounds a recurrence on this machine and prints it as JSON: FMA rate, read bandwidth of L1, L2 and L3
// (each per core, with all threads at work, as a recurrence meets them), and the cost of one barrier. Built for the
// machine that builds it (-march=native), because it runs there.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <span>
#include <vector>

#include "runtime/threads/cores.h"
#include "runtime/threads/team.h"

namespace {

#ifdef __AVX512F__
constexpr int64_t kVectorBytes = 64;
#else
constexpr int64_t kVectorBytes = 32;
#endif

template <typename T>
using Vector [[gnu::vector_size(kVectorBytes)]] = T;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Keeps a value, and the work that made it, from being optimised away.
template <typename V>
void keep(const V& value) {
  asm volatile("" : : "m"(value) : "memory");
}

/// Floating-point operations done by `rounds` rounds of independent multiply-adds.
template <typename T>
double multiply_add(int64_t rounds) {
  // Latency 4 times two units asks for 8 chains; 12 leave room for a slower machine and fit 16 registers.
  constexpr int kChains = 12;
  Vector<T> accumulators[kChains];
  Vector<T> factor = {}, addend = {};
  factor += static_cast<T>(0.5);
  addend += static_cast<T>(1);
  // Different starts, or the compiler sees that all chains are one.
  for (int c = 0; c < kChains; ++c) accumulators[c] = addend * static_cast<T>(c);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+x"(factor), "+x"(addend));
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) accumulators[c] = accumulators[c] * factor + addend;
  }
  for (const auto& accumulator : accumulators) keep(accumulator);
  return 2.0 * static_cast<double>(rounds) * kChains * (kVectorBytes / sizeof(T));
}

/// Bytes read by `rounds` passes over the buffer, whose size is a multiple of eight vectors.
double read(std::span<const Vector<float>> buffer, int64_t rounds) {
  Vector<float> sums[8] = {};
  for (int64_t i = 0; i < rounds; ++i) {
    const Vector<float>* position = buffer.data();
    asm volatile("" : "+r"(position));
    for (size_t at = 0; at + 8 <= buffer.size(); at += 8) {
#pragma GCC unroll 8
      for (size_t v = 0; v < 8; ++v) sums[v] += position[at + v];
    }
  }
  keep(((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7])));
  return static_cast<double>(rounds) * static_cast<double>(buffer.size_bytes());
}

/// Work a second and thread, with all threads at work: the best of five tries of about 20 ms, so that a neighbour on a
/// shared machine spoils one try and not the figure.
double rate(weft::runtime::Team& team, const std::function<double(int64_t thread, int64_t rounds)>& work) {
  int64_t rounds = 1;
  for (double took = 0; took < 0.01 && rounds < (int64_t{1} << 40); rounds *= 2) {
    auto start = Clock::now();
    work(0, rounds);
    took = seconds_since(start);
  }
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::vector<double> rates(static_cast<size_t>(team.size()), 0.0);
    team.run([&](int64_t thread, int64_t) {
      auto start = Clock::now();
      double done = work(thread, rounds);
      rates[static_cast<size_t>(thread)] = done / seconds_since(start);
    });
    best = std::max(best, *std::min_element(rates.begin(), rates.end()));
  }
  return best;
}

double bandwidth(weft::runtime::Team& team, int64_t bytes) {
  auto vectors = static_cast<size_t>(std::max<int64_t>(bytes / kVectorBytes / 8, 1) * 8);
  std::vector<std::vector<Vector<float>>> buffers(static_cast<size_t>(team.size()),
                                                  std::vector<Vector<float>>(vectors));
  return rate(team, [&](int64_t thread, int64_t rounds) { return read(buffers[static_cast<size_t>(thread)], rounds); });
}

double barrier_seconds(weft::runtime::Team& team) {
  constexpr int64_t kRounds = 20000;
  double best = 1;
  for (int attempt = 0; attempt < 5; ++attempt) {
    double took = 0;
    weft::runtime::SpinBarrier barrier(team.size());
    team.run([&](int64_t thread, int64_t threads) {
      if (threads != team.size()) return;
      auto start = Clock::now();
      for (int64_t i = 0; i < kRounds; ++i) barrier.arrive_and_wait();
      if (thread == 0) took = seconds_since(start);
    });
    best = std::min(best, took / kRounds);
  }
  return best;
}

int64_t first_level_bytes() {
  const long bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  return bytes > 0 ? bytes : 32 << 10;
}

}  // namespace

/// calibrate [THREADS]: the figures are per core with THREADS threads at work (default: all).
int main(int argc, char** argv) {
  auto& team = weft::runtime::own_team(argc > 1 ? std::atoll(argv[1]) : 0);
  const int64_t l1 = first_level_bytes(), l2 = weft::runtime::private_cache_bytes();
  const int64_t l3 = weft::runtime::shared_cache_bytes();
  // Each buffer is half as large as its cache level, so that other data fits beside it. L3 is shared with other
  // processes, on a virtual machine even with those of other machines. So its buffer has at most a few megabytes, about
  // the size of weights that L2 doesn't hold.
  int64_t third = std::max(2 * l2, std::min<int64_t>(l3 / (2 * team.size()), 6 << 20));
  fmt::print("{{\"threads\": {}, \"vector_bytes\": {},\n", team.size(), kVectorBytes);
  fmt::print(" \"fma_f32_flops\": {:.4g}, \"fma_f64_flops\": {:.4g},\n",
             rate(team, [](int64_t, int64_t rounds) { return multiply_add<float>(rounds); }),
             rate(team, [](int64_t, int64_t rounds) { return multiply_add<double>(rounds); }));
  fmt::print(" \"l1_bytes\": {}, \"l2_bytes\": {}, \"l3_bytes\": {},\n", l1, l2, l3);
  fmt::print(" \"l1_bandwidth\": {:.4g}, \"l2_bandwidth\": {:.4g}, \"l3_bandwidth\": {:.4g},\n",
             bandwidth(team, l1 / 2), bandwidth(team, l2 / 2), bandwidth(team, third));
  fmt::print(" \"barrier_seconds\": {:.4g}}}\n", barrier_seconds(team));
  return 0;
}
