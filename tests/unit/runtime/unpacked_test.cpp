// Products with weights that are not packed, and with panels: the micro-kernels against the definition, and which runs
// leave packs out.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/settings.h"
#include "interpreter/interpreter.h"
#include "interpreter/numeric.h"
#include "lowered.h"
#include "machine.h"
#include "native_run.h"
#include "random_program.h"
#include "runtime/kernels/isa_tables.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/packs.h"
#include "runtime/memory/guarded_memory.h"
#include "runtime/plan/run.h"

namespace weft::unpacked_test {
namespace {

using runtime::Isa;
using runtime::ProductKernel;
using runtime::ProductLayout;

struct Case {
  Isa isa;
  DType left, weights;
  bool without_product = false;  ///< the kernels of a CPU of that set without bf16 products

  bool is_widened() const { return weights == DType::kF16 || weights == DType::kI8; }
  DType sums() const { return weights == DType::kF64 ? DType::kF64 : DType::kF32; }
  const runtime::PairKernels& pairs() const {
#if defined(__x86_64__)
    if (without_product) return runtime::kAvx512Pairs;
#endif
    return runtime::pair_kernels(isa);
  }
  ProductKernel kernel(int64_t vectors) const {
    if (is_widened()) return runtime::widened_kernels(isa, weights).product[vectors];
    if (weights != DType::kBF16) return runtime::kernels(isa, weights).product[vectors];
    return (left == DType::kBF16 ? pairs().product_bf16 : pairs().product_f32)[vectors];
  }
  runtime::PackKernel pack() const {
    if (is_widened()) return runtime::widened_kernels(isa, weights).pack;
    return weights == DType::kBF16 ? pairs().pack : runtime::kernels(isa, weights).pack;
  }
  runtime::PanelsOnTheWay on_the_way() const {
    if (is_widened()) return runtime::widened_kernels(isa, weights).on_the_way;
    return weights == DType::kBF16 ? pairs().on_the_way : runtime::kernels(isa, weights).on_the_way;
  }
};

/// Numbers in [-1, 1] of a type, each a half's, with NaNs everywhere else; of i8 their multiples of 1/127. Memory
/// behind them faults.
class Numbers {
 public:
  Numbers(DType dtype, int64_t count)
      : dtype_(dtype), memory_(count * size_of(dtype), runtime::GuardedMemory::Side::kEnd, size_of(dtype)) {
    for (int64_t i = 0; i < count; ++i) set(i, std::numeric_limits<double>::quiet_NaN());
  }
  void set(int64_t i, double x) {
    const auto single = static_cast<float>(x);
    const auto half = static_cast<uint16_t>(std::bit_cast<uint32_t>(single) >> 16);
    if (dtype_ == DType::kF64) std::memcpy(at(i), &x, 8);
    if (dtype_ == DType::kF32) std::memcpy(at(i), &single, 4);
    if (dtype_ == DType::kBF16) std::memcpy(at(i), &half, 2);
    const auto f16 = interpreter::store<interpreter::Half>(single);
    if (dtype_ == DType::kF16) std::memcpy(at(i), &f16, 2);
    const auto byte = static_cast<int8_t>(std::isnan(x) ? -128 : std::clamp(std::round(127 * x), -127.0, 127.0));
    if (dtype_ == DType::kI8) std::memcpy(at(i), &byte, 1);
  }
  double get(int64_t i) const {
    if (dtype_ == DType::kF64) return read<double>(i);
    if (dtype_ == DType::kF32) return static_cast<double>(read<float>(i));
    if (dtype_ == DType::kF16) return static_cast<double>(interpreter::load(read<interpreter::Half>(i)));
    if (dtype_ == DType::kI8) return static_cast<double>(read<int8_t>(i));
    return static_cast<double>(std::bit_cast<float>(uint32_t{read<uint16_t>(i)} << 16));
  }
  void* at(int64_t i) { return memory_.data() + i * size_of(dtype_); }
  const void* at(int64_t i) const { return memory_.data() + i * size_of(dtype_); }

 private:
  template <typename T>
  T read(int64_t i) const {
    T x;
    std::memcpy(&x, at(i), sizeof(T));
    return x;
  }

  DType dtype_;
  runtime::GuardedMemory memory_;
};

class UnpackedTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!runtime::supports(GetParam().isa)) GTEST_SKIP() << "this CPU lacks " << name_of(GetParam().isa);
  }
  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  void fill(Numbers& numbers, int64_t rows, int64_t columns, int64_t ld) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        numbers.set(r * ld + c, static_cast<double>(between(-128, 128)) / 128);  // exact in bf16 and f16
  }
  int64_t lanes() const { return target::lanes(GetParam().sums()); }

  std::mt19937_64 random_{20260101};
};

TEST_P(UnpackedTest, AgreesWithTheDefinition) {
  for (int trial = 0; trial < 400; ++trial) {
    ProductLayout p{};
    p.groups = between(1, 4);
    p.unroll = p.groups == 1 ? between(1, 4) : 1;
    p.n = trial % 3 == 0 ? between(1, 8) : between(1, 90);
    p.k = trial % 4 == 0 ? between(1, 5) : between(1, 150);
    if (trial % 32 == 1) p.k = between(513, 1100);  // more than one part of a panel, if there are blocks of rows
    p.transposed = between(0, 1);
    if (trial % 64 == 2) p.k = between(500, 4500), p.transposed = 1;  // dot products in parts
    const bool packed = trial % 2 == 1;  // a last panel with units that are only zeros among them
    const int64_t rows = between(1, packed || trial % 16 == 4 ? 30 : 14), lda = p.k + between(0, 5),
                  width = p.groups * p.unroll * lanes();
    const int64_t source_rows = p.transposed ? p.groups * p.n : p.k, columns = p.transposed ? p.k : p.groups * p.n;
    p.ld = columns + between(0, 5);
    const int64_t panels = (p.n + p.unroll * lanes() - 1) / (p.unroll * lanes());
    const int64_t first = between(0, panels - 1), count = between(1, panels - first);
    Numbers a(GetParam().left, rows * lda), weights(GetParam().weights, source_rows * p.ld);
    Numbers c(GetParam().sums(), count * rows * width);
    fill(a, rows, p.k, lda);
    fill(weights, source_rows, columns, p.ld);
    std::vector<std::byte> memory(packed ? static_cast<size_t>(panels * (p.k + 1) * width * 8) : 0);
    if (packed)
      GetParam().pack()({weights.at(0), memory.data(), p.k, p.n, p.groups, p.unroll, p.ld, p.transposed != 0}, 0,
                        panels);
    GetParam().kernel(p.groups * p.unroll)(rows, a.at(0), lda, packed ? memory.data() : nullptr,
                                           packed ? nullptr : weights.at(0), first, count, c.at(0), &p, a.at(0),
                                           trial % 5 == 0 ? between(1, 2000) : 0);  // lines ahead
    for (int64_t panel = 0; panel < count; ++panel)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < width; ++j) {
          const int64_t group = j / (p.unroll * lanes());
          const int64_t column = (first + panel) * p.unroll * lanes() + j % (p.unroll * lanes());
          if (column >= p.n) continue;
          const int64_t n = group * p.n + column;
          double sum = 0;
          for (int64_t i = 0; i < p.k; ++i)
            sum += a.get(r * lda + i) * weights.get(p.transposed ? n * p.ld + i : i * p.ld + n);
          // The products are multiples of 2^-14: f32 holds all sums of so few. Dot products by bytes round the left
          // operand to a fixed point (ByteRowsKernel).
          const bool is_exact = GetParam().weights != DType::kI8 || p.transposed == 0 || packed;
          const double bound = is_exact ? 0 : 128 * static_cast<double>(p.k) * std::exp2(-22);
          ASSERT_NEAR(c.get((panel * rows + r) * width + j), sum, bound)
              << "packed " << packed << " rows " << rows << " k " << p.k << " n " << p.n << " groups " << p.groups
              << " unroll " << p.unroll << " transposed " << p.transposed << " row " << r << " column " << n;
        }
  }
}

TEST_P(UnpackedTest, AnElementHasTheSameBitsWhateverIsBesideIt) {
  std::normal_distribution<double> normal;
  for (const auto [transposed, k, n] : std::vector<std::array<int64_t, 3>>{{0, 5, 75},
                                                                           {0, 93, 75},
                                                                           {0, 200, 75},
                                                                           {1, 5, 75},
                                                                           {1, 93, 75},
                                                                           {1, 200, 75},
                                                                           {1, 93, 3},
                                                                           {1, 200, 6},
                                                                           {1, 2500, 19}}) {
    const int64_t rows = 9, width = 3 * lanes(), panels = (n + lanes() - 1) / lanes();
    const ProductLayout p{k, n, 3, 1, transposed ? k : 3 * n, transposed};
    Numbers a(GetParam().left, rows * k), weights(GetParam().weights, 3 * n * k);
    for (int64_t i = 0; i < rows * k; ++i) a.set(i, normal(random_));
    for (int64_t i = 0; i < 3 * n * k; ++i) weights.set(i, normal(random_));
    Numbers all(GetParam().sums(), panels * rows * width), some(GetParam().sums(), panels * rows * width);
    const ProductKernel kernel = GetParam().kernel(3);
    kernel(rows, a.at(0), k, nullptr, weights.at(0), 0, panels, all.at(0), &p, nullptr, 0);
    for (int64_t first = 0; first < panels; ++first)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t count : {int64_t{1}, int64_t{2}, rows - row}) {
          if (row + count > rows) continue;
          kernel(count, a.at(row * k), k, nullptr, weights.at(0), first, 1, some.at(0), &p, nullptr, 0);
          for (int64_t r = 0; r < count; ++r)
            for (int64_t j = 0; j < width; ++j)
              if (first * lanes() + j % lanes() < n) {
                ASSERT_EQ(some.get(r * width + j), all.get((first * rows + row + r) * width + j))
                    << "k " << k << " row " << row << " of " << count << " panel " << first;
              }
        }
  }
}

/// A layout, with the number and sizes of its panels and weights.
struct Sizes {
  ProductLayout layout;
  int64_t panels, panel_bytes, weights;  ///< weights: their elements, with the gaps between rows

  Sizes(const Case& test, int64_t k, int64_t n, int64_t groups, int64_t unroll, bool transposed, int64_t gap) {
    const int64_t lanes = target::lanes(test.sums()), steps = test.weights == DType::kBF16 ? (k + 1) / 2 : k;
    const int64_t ld = (transposed ? k : groups * n) + gap;
    layout = {k, n, groups, unroll, ld, transposed ? 1 : 0};
    panels = (n + unroll * lanes - 1) / (unroll * lanes);
    panel_bytes = steps * groups * unroll * target::kUnit;
    weights = (transposed ? groups * n : k) * ld;
  }
};

TEST_P(UnpackedTest, PanelsPackedOnTheWayGiveTheBitsOfPanelsPackedBefore) {
  std::normal_distribution<double> normal;
  const Case& test = GetParam();
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t groups = between(1, 4), unroll = groups == 1 ? between(1, 4) : 1, rows = between(0, 9);
    const Sizes sizes(test, trial % 4 == 0 ? between(1, 5) : between(1, 300), between(1, 90), groups, unroll,
                      between(0, 1) != 0, between(0, 5));
    const ProductLayout& p = sizes.layout;
    Numbers a(test.left, std::max<int64_t>(1, rows) * p.k), weights(test.weights, sizes.weights);
    for (int64_t i = 0; i < rows * p.k; ++i) a.set(i, normal(random_));
    for (int64_t i = 0; i < sizes.weights; ++i) weights.set(i, normal(random_));
    const runtime::GuardedMemory all(sizes.panels * sizes.panel_bytes, runtime::GuardedMemory::Side::kEnd, 64);
    test.pack()({weights.at(0), all.data(), p.k, p.n, groups, unroll, p.ld, p.transposed != 0}, 0, sizes.panels);
    const int64_t first = between(0, sizes.panels - 1), count = between(1, sizes.panels - first);
    ASSERT_EQ(test.on_the_way()(all.data(), weights.at(0), first, count, &p), all.data());
    ASSERT_EQ(test.on_the_way()(nullptr, weights.at(0), first, count, &p), nullptr);
    const runtime::GuardedMemory own(count * sizes.panel_bytes, runtime::GuardedMemory::Side::kEnd, 64);
    const void* panels = test.on_the_way()(runtime::on_the_way(own.data()), weights.at(0), first, count, &p);
    ASSERT_EQ(std::memcmp(own.data(), all.data() + first * sizes.panel_bytes, static_cast<size_t>(own.bytes())), 0);
    const int64_t tiles = count * rows * groups * unroll * target::lanes(test.sums());
    Numbers before(test.sums(), tiles), found(test.sums(), tiles);
    test.kernel(groups * unroll)(rows, a.at(0), p.k, all.data(), nullptr, first, count, before.at(0), &p, nullptr, 0);
    test.kernel(groups * unroll)(rows, a.at(0), p.k, panels, nullptr, first, count, found.at(0), &p, all.data(), 1000);
    ASSERT_EQ(std::memcmp(before.at(0), found.at(0), static_cast<size_t>(tiles * size_of(test.sums()))), 0)
        << "rows " << rows << " k " << p.k << " n " << p.n << " groups " << groups << " unroll " << unroll
        << " transposed " << p.transposed;
  }
}

INSTANTIATE_TEST_SUITE_P(All, UnpackedTest, ::testing::ValuesIn([] {
                           std::vector<Case> all;
                           for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
                             all.push_back({isa, DType::kF32, DType::kF32});
                             all.push_back({isa, DType::kF64, DType::kF64});
                             all.push_back({isa, DType::kF32, DType::kBF16});
                             all.push_back({isa, DType::kF32, DType::kF16});
                             all.push_back({isa, DType::kF32, DType::kI8});
                             all.push_back({isa, DType::kBF16, DType::kBF16});
                           }
                           all.push_back({Isa::kAvx512, DType::kBF16, DType::kBF16, true});
                           all.push_back({Isa::kAmx, DType::kBF16, DType::kBF16});
                           all.push_back({Isa::kAmxEmulated, DType::kBF16, DType::kBF16});
                           return all;
                         }()),
                         [](const auto& test) {
                           const Case& each = test.param;
                           return fmt::format("{}_{}_{}{}", name_of(each.isa), name_of(each.left),
                                              name_of(each.weights), each.without_product ? "_widened" : "");
                         });

// ---- which packs are left out

struct Program {
  const char* name;
  std::vector<int64_t> rows;  ///< T = rows[i], B = 1
  std::vector<int64_t> left_out;
  std::array<int64_t, 3> on_the_way;  ///< for T = kSteps[i], B = 40
  const char* text;
};

constexpr int64_t kSteps[] = {1, 2, 3};

const Program kPrograms[] = {
    // 64 weights a row are packed for more than 7 rows (target::rows_worth_packing), those of the other layout for 48.
    {"a_recurrence",
     {0, 1, 7, 8},
     {1, 1, 1, 0},
     {1, 1, 0},
     R"(program @p(%h0: f32[B,64], %x: f32[T,B,64], %w: f32[64,64]) {
       %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {
         %a = matmul %h, %w {transpose_b = true} : f32[B,64]
         %b = add %a, %xt : f32[B,64]
         %n = tanh %b : f32[B,64]
         yield carry(%n) ys(%n)
       } : f32[B,64], f32[T,B,64]
       return %ys, %hT })"},
    {"by_columns", {1, 48, 49}, {1, 1, 0}, {0, 1, 1}, R"(program @p(%x: f32[T,B,64], %w: f32[64,50]) {
       %y = matmul %x, %w : f32[T,B,50]
       return %y })"},
    {"rows_of_all_products_count", {3, 5}, {1, 0}, {1, 1, 1}, R"(program @p(%x: f32[T,B,64], %w: f32[50,64]) {
       %y = matmul %x, %w {transpose_b = true} : f32[T,B,50]
       %t = tanh %x : f32[T,B,64]
       %z = matmul %t, %w {transpose_b = true} : f32[T,B,50]
       return %y, %z })"},
    {"slices_of_weights", {1, 40}, {1, 0}, {1, 1, 1}, R"(program @p(%x: f32[T,B,30], %w: f32[60,64]) {
       %r = slice %w {dim = 0, start = 9, limit = 59} : f32[50,64]
       %c = slice %r {dim = 1, start = 5, limit = 35} : f32[50,30]
       %y = matmul %x, %c {transpose_b = true} : f32[T,B,50]
       return %y })"},
    // Weights for half a unit of columns, in rows of two units: dot products, whatever the number of rows of the left
    // operand.
    {"narrow_weights", {1, 1000}, {1, 1}, {0, 0, 0}, R"(program @p(%x: f32[T,B,32], %w: f32[8,32]) {
       %y = matmul %x, %w {transpose_b = true} : f32[T,B,8]
       return %y })"},
    {"columns_of_more_than_half_a_unit", {1, 1000}, {1, 0}, {1, 1, 1}, R"(program @p(%x: f32[T,B,32], %w: f32[9,32]) {
       %y = matmul %x, %w {transpose_b = true} : f32[T,B,9]
       return %y })"},
    {"narrow_weights_of_short_rows", {1, 1000}, {1, 0}, {1, 1, 1}, R"(program @p(%x: f64[T,B,15], %w: f64[4,15]) {
       %y = matmul %x, %w {transpose_b = true} : f64[T,B,4]
       return %y })"},
    {"narrow_weights_of_groups", {1, 1000}, {1, 1}, {0, 0, 0}, R"(program @p(%x: f32[T,B,70], %w: f32[15,70]) {
       %y = matmul %x, %w {transpose_b = true} : f32[T,B,15]
       %a = slice %y {dim = 2, start = 0, limit = 5} : f32[T,B,5]
       %b = slice %y {dim = 2, start = 5, limit = 10} : f32[T,B,5]
       %c = slice %y {dim = 2, start = 10, limit = 15} : f32[T,B,5]
       %d = add %a, %b : f32[T,B,5]
       %e = mul %d, %c : f32[T,B,5]
       return %e })"},
    {"computed_weights", {1, 40, 49}, {2, 1, 0}, {1, 2, 2}, R"(program @p(%x: f32[T,B,30], %w: f32[50,30]) {
       %c = tanh %w : f32[50,30]
       %y = matmul %x, %c {transpose_b = true} : f32[T,B,50]
       %z = tanh %y : f32[T,B,50]
       %u = matmul %z, %c : f32[T,B,30]
       return %u })"},
    // As those of f32.
    {"f16_weights", {1, 7, 10}, {1, 1, 0}, {1, 1, 1}, R"(program @p(%x: f32[T,B,64], %w: f16[50,64]) {
       %f = cast %w : f32[50,64]
       %y = matmul %x, %f {transpose_b = true} : f32[T,B,50]
       return %y })"},
    {"donated_weights", {1}, {0}, {0, 0, 0}, R"(program @p(%x: f32[T,B,30], %w: f32[50,30]) {
       %y = matmul %x, %w {transpose_b = true} : f32[T,B,50]
       %n = tanh %w : f32[50,30]
       return %y, %n in %w })"},
    {"layers", {1, 5}, {1, 1}, {1, 1, 0}, R"(program @p(%h0: f32[B,64], %x: f32[T,B,64], %w: f32[3,64,64]) {
       %top = scan length 3 carry(%in = %x) xs(%wl = %w) {
         %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %in) {
           %a = matmul %h, %wl {transpose_b = true} : f32[B,64]
           %b = add %a, %xt : f32[B,64]
           %n = tanh %b : f32[B,64]
           yield carry(%n) ys(%n)
         } : f32[B,64], f32[T,B,64]
         yield carry(%ys) ys()
       } : f32[T,B,64]
       return %top })"},
    {"weights_that_change", {1, 5}, {0, 0}, {0, 0, 0}, R"(program @p(%h0: f64[B,64], %x: f64[T,B,64], %w0: f64[64,64]) {
       %hL, %wL = scan length 3 carry(%hi = %h0, %w = %w0) xs() {
         %hT = scan length T carry(%h = %hi) xs(%xt = %x) {
           %a = matmul %h, %w {transpose_b = true} : f64[B,64]
           %b = add %a, %xt : f64[B,64]
           %n = tanh %b : f64[B,64]
           yield carry(%n) ys()
         } : f64[B,64]
         %v = sin %w : f64[64,64]
         yield carry(%hT, %v) ys()
       } : f64[B,64], f64[64,64]
       return %hL, %wL })"},
};

std::ostream& operator<<(std::ostream& out, const Program& program) { return out << program.text; }

class LeftOutOf : public ::testing::TestWithParam<Program> {
 protected:
  ~LeftOutOf() override { mutable_settings().pack.clear(); }
};

TEST_P(LeftOutOf, WherePackingIsNotWorthIt) {
  testing::on_each_machine([](const testing::Machine&) {
    const testing::Lowered lowered(GetParam().text);
    const runtime::Plan& plan = lowered.schedule.plan;
    ASSERT_EQ(plan.symbols, (std::vector<std::string>{"B", "T"}));
    for (size_t i = 0; i < GetParam().rows.size(); ++i)
      EXPECT_EQ(std::ssize(runtime::left_out_packs(plan, values_of(plan, {1, GetParam().rows[i]}))),
                GetParam().left_out[i])
          << GetParam().rows[i] << " rows";
  });
}

TEST_P(LeftOutOf, ResultsAreThoseOfTheInterpreter) {
  const ir::Program program = ir::parse(GetParam().text);
  for (const ir::Bindings& bindings : std::vector<ir::Bindings>{{{"T", 1}, {"B", 1}}, {{"T", 5}, {"B", 3}}}) {
    const std::vector<interpreter::Array> inputs = testing::random_inputs(program, bindings, 3);
    const std::vector<interpreter::Array> expected = interpreter::evaluate(program, inputs);
    std::vector<std::vector<double>> before;  // packed
    for (const char* pack : {"", "never", "always", "way"})
      for (int64_t threads : {1, 3, 5}) {
        mutable_settings().pack = pack;
        mutable_settings().share_all = threads > 1;
        const auto found = testing::run_native(GetParam().text, inputs, bindings, runtime::own_team(threads));
        mutable_settings().share_all = false;
        for (size_t i = 0; i < expected.size(); ++i) {
          const std::vector<double> x = found[i].to_doubles(), y = expected[i].to_doubles();
          for (size_t j = 0; j < y.size(); ++j) ASSERT_NEAR(x[j], y[j], 1e-4) << pack << ", result " << i;
          if (pack == std::string("always") && threads == 1) before.push_back(x);
          if (!before.empty()) {
            ASSERT_EQ(x, before[i]) << pack << ", result " << i;
          }
        }
      }
  }
}

TEST_P(LeftOutOf, OtherPacksAreOnTheWayWhereProductsGoOverThemOnceOrTwice) {
  testing::on_each_machine([](const testing::Machine&) {
    const testing::Lowered lowered(GetParam().text);
    const runtime::Plan& plan = lowered.schedule.plan;
    for (size_t i = 0; i < std::size(kSteps); ++i)
      EXPECT_EQ(std::ssize(runtime::packs_on_the_way(plan, values_of(plan, {40, kSteps[i]}))), GetParam().on_the_way[i])
          << kSteps[i] << " steps";
  });
}

TEST(LeftOut, PacksOfProductsThatMayBeInWindowsAreNotOnTheWayOfManyRows) {
  const char* const text = R"(program @p(%h0: f32[B,64], %x: f32[T,B,64], %w: f32[64,64], %u: f32[64,64]) {
    %p = matmul %x, %w {transpose_b = true} : f32[T,B,64]
    %hT, %ys = scan length T carry(%h = %h0) xs(%pt = %p) {
      %a = matmul %h, %u {transpose_b = true} : f32[B,64]
      %b = add %a, %pt : f32[B,64]
      %n = tanh %b : f32[B,64]
      yield carry(%n) ys(%n)
    } : f32[B,64], f32[T,B,64]
    return %ys, %hT })";
  testing::on_each_machine([&](const testing::Machine&) {
    const testing::Lowered lowered(text);
    const runtime::Plan& plan = lowered.schedule.plan;
    ASSERT_TRUE(std::ranges::any_of(plan.stages, [](const auto& stage) { return !stage.windows.empty(); }));
    auto on_the_way = [&](int64_t rows, int64_t steps) {
      return std::ssize(runtime::packs_on_the_way(plan, values_of(plan, {rows, steps})));
    };
    EXPECT_EQ(on_the_way(100, 1), 2);
    EXPECT_EQ(on_the_way(100, 2), 2);
    EXPECT_EQ(on_the_way(100, 3), 0);  // more than 256 rows, and the loop goes over its weights three times
    EXPECT_EQ(on_the_way(50, 3), 1);
    EXPECT_EQ(on_the_way(1000, 1), 2);
    EXPECT_EQ(on_the_way(500, 2), 1);
    EXPECT_EQ(on_the_way(1000, 2), 0);
    EXPECT_EQ(on_the_way(2000, 1), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(All, LeftOutOf, ::testing::ValuesIn(kPrograms),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft::unpacked_test
