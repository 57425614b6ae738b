// The micro-kernels alone: their flop/s, also as a share of the FMA peak that is measured beside them; bytes/s of
// copies. Names read kernel/isa/dtype/arguments; choose with --benchmark_filter=tile/avx512/f32.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "runtime/kernels/kernels.h"

namespace {

using weft::DType;
using weft::runtime::Isa;

struct FreeMemory {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<char, FreeMemory>;

Buffer zeros(int64_t bytes) {
  const size_t size = (static_cast<size_t>(bytes) / 4096 + 1) * 4096;
  Buffer data(static_cast<char*>(std::aligned_alloc(4096, size)));
  std::memset(data.get(), 0, size);
  return data;
}

struct Target {
  Isa isa;
  DType dtype;

  const weft::runtime::DTypeKernels& kernels() const { return weft::runtime::kernels(isa, dtype); }
  int64_t element() const { return weft::size_of(dtype); }
  int64_t lanes() const { return 64 / element(); }
};

void report_flops(benchmark::State& state, double flops, double peak) {
  const double done = flops * static_cast<double>(state.iterations());
  state.counters["flop/s"] = benchmark::Counter(done, benchmark::Counter::kIsRate);
  state.counters["share of peak"] = benchmark::Counter(done / peak, benchmark::Counter::kIsRate);
}

/// The flop/s of a product whose operands stay in the first-level cache and whose block fills the registers. The other
/// figures are shares of this one.
double peak_of(const Target& target) {
  const int64_t k = 64, rows = 12 * target.kernels().tile_rows[3];
  const Buffer a = zeros(rows * k * target.element()), panel = zeros(k * 3 * 64), c = zeros(rows * 3 * 64);
  double best = 0;
  for (int attempt = 0; attempt < 50; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i)
      target.kernels().tile[3](rows, k, a.get(), k, panel.get(), c.get(), 3 * target.lanes(), 0);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, 20.0 * 2 * static_cast<double>(rows * k * 3 * target.lanes()) / took.count());
  }
  return best;
}

/// Multiplies by panels of `kilobytes` together, one after the other, so that each comes from the cache level of that
/// size.
void tile(benchmark::State& state, const Target& target, int64_t vectors, int64_t rows, int64_t k, int64_t kilobytes) {
  const int64_t panel_bytes = k * vectors * 64, panels = std::max<int64_t>(1, (kilobytes << 10) / panel_bytes);
  const int64_t width = vectors * target.lanes();
  const Buffer a = zeros(rows * k * target.element()), weights = zeros(panels * panel_bytes);
  const Buffer c = zeros(panels * rows * vectors * 64);
  for (auto _ : state) {
    target.kernels().tile_panels[vectors](rows, k, a.get(), k, weights.get(), panels, c.get(), panels * width, width,
                                          0);
    benchmark::ClobberMemory();
  }
  report_flops(state, 2.0 * static_cast<double>(rows * k * panels * width), peak_of(target));
}

void outer(benchmark::State& state, const Target& target, int64_t rows, int64_t m, int64_t n) {
  const Buffer a = zeros(rows * m * target.element()), b = zeros(rows * n * target.element());
  const Buffer c = zeros(m * n * target.element()), scratch = zeros(target.kernels().outer_scratch_bytes);
  const weft::runtime::OuterArgs args{a.get(), b.get(), c.get(), rows, m, n, m, n, n};
  for (auto _ : state) {
    target.kernels().outer(args, 0, m, 0, n, scratch.get());
    benchmark::ClobberMemory();
  }
  report_flops(state, 2.0 * static_cast<double>(rows * m * n), peak_of(target));
}

void pack(benchmark::State& state, const Target& target, int64_t k, int64_t n, bool transposed) {
  const int64_t groups = 3, panels = (n + target.lanes() - 1) / target.lanes();
  const Buffer source = zeros(k * groups * n * target.element()), packed = zeros(panels * k * groups * 64);
  const weft::runtime::PackArgs args{source.get(), packed.get(), k, n, groups, 1, transposed ? k : groups * n,
                                     transposed};
  for (auto _ : state) {
    target.kernels().pack(args, 0, panels);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * k * groups * n * target.element());
}

void column_sum(benchmark::State& state, const Target& target, int64_t rows, int64_t columns) {
  const Buffer a = zeros(rows * columns * target.element()), out = zeros(columns * target.element());
  for (auto _ : state) {
    target.kernels().column_sum(a.get(), rows, columns, out.get(), 0, columns);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * rows * columns * target.element());
}

struct OuterSizes {
  int64_t rows, m, n;
};

void register_all(const Target& target) {
  const std::string of = fmt::format("{}/{}", name_of(target.isa), name_of(target.dtype));
  for (int64_t vectors = 1; vectors <= weft::target::kMaxPanelUnits; ++vectors)
    for (int64_t kilobytes : {16, 512})
      for (int64_t k : {64, 128, 256, 512, 1024})
        for (int64_t rows : {1, 2, 4, 8, 16, 32, 64})
          benchmark::RegisterBenchmark(
              fmt::format("tile/{}/vectors{}/k{}/rows{}/{}KiB", of, vectors, k, rows, kilobytes).c_str(), tile, target,
              vectors, rows, k, kilobytes);
  for (const OuterSizes s : {OuterSizes{4096, 1536, 512},
                             {8192, 192, 64},
                             {16384, 192, 64},
                             {4096, 384, 128},
                             {4096, 16, 16},
                             {4096, 17, 19},
                             {2048, 3072, 1024}})
    benchmark::RegisterBenchmark(fmt::format("outer/{}/{}x{}x{}", of, s.rows, s.m, s.n).c_str(), outer, target, s.rows,
                                 s.m, s.n);
  for (int64_t size : {64, 128, 512, 1024})
    for (bool transposed : {false, true})
      benchmark::RegisterBenchmark(
          fmt::format("pack/{}/k{}/n{}{}", of, size, size, transposed ? "/transposed" : "").c_str(), pack, target, size,
          size, transposed);
  for (int64_t columns : {16, 192, 1536})
    benchmark::RegisterBenchmark(fmt::format("column_sum/{}/4096x{}", of, columns).c_str(), column_sum, target, 4096,
                                 columns);
}

}  // namespace

int main(int argc, char** argv) {
  for (Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kGeneric})
    for (DType dtype : {DType::kF32, DType::kF64})
      if (weft::runtime::supports(isa)) register_all({isa, dtype});
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
