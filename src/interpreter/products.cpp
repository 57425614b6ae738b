#include <algorithm>
#include <limits>
#include <vector>

#include "interpreter/kernels.h"
#include "interpreter/numeric.h"

// Reductions and products, all in increasing order of index in the accumulator type (numeric.h), rounded once at the
// end.

namespace weft::interpreter {
namespace {

template <typename T>
void store_all(const std::vector<Accumulator<T>>& sums, T* out) {
  for (size_t i = 0; i < sums.size(); ++i) out[i] = store<T>(static_cast<Compute<T>>(sums[i]));
}

/// Folds every element of the operand into its element of the result, in the operand's order.
template <typename T, typename Total, typename F>
struct Fold {
  std::span<const int64_t> sizes;
  std::vector<int64_t> out_strides;  ///< 0 for the dims reduced over
  F fold;

  const T* run(const T* from, Total* to, size_t dim = 0) const {
    if (dim == sizes.size()) {
      fold(*to, *from);
      return from + 1;
    }
    for (int64_t i = 0; i < sizes[dim]; ++i) from = run(from, to + i * out_strides[dim], dim + 1);
    return from;
  }
};

template <typename T, typename Total, typename F>
void reduce(const Call& call, Total* totals, F fold) {
  const View& a = call.operands[0];
  if (count_of(a.sizes) == 0) return;
  const auto& dims = call.op.attr<std::vector<int64_t>>("dims");
  std::vector<int64_t> strides(a.sizes.size(), 0);
  int64_t stride = 1;
  for (size_t i = a.sizes.size(); i-- > 0;) {
    if (std::binary_search(dims.begin(), dims.end(), static_cast<int64_t>(i))) continue;
    strides[i] = stride;
    stride *= a.sizes[i];
  }
  Fold<T, Total, F>{a.sizes, std::move(strides), fold}.run(call.in<T>(0), totals);
}

/// c[m][n] += sum over k of a(m, k) * b(k, n), by strides.
template <typename T>
struct Product {
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col;

  void run(const T* a, const T* b, Accumulator<T>* c) const {
    if (b_row == 1) return run_dots(a, b, c);
    for (int64_t i = 0; i < m; ++i, c += n)
      for (int64_t l = 0; l < k; ++l) {
        auto factor = static_cast<Accumulator<T>>(load(a[i * a_row + l * a_col]));
        const T* row = b + l * b_row;
        for (int64_t j = 0; j < n; ++j) c[j] += factor * static_cast<Accumulator<T>>(load(row[j * b_col]));
      }
  }

  /// The same sums in the same order, for b whose columns are contiguous.
  void run_dots(const T* a, const T* b, Accumulator<T>* c) const {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j, ++c)
        for (int64_t l = 0; l < k; ++l)
          *c += static_cast<Accumulator<T>>(load(a[i * a_row + l * a_col])) *
                static_cast<Accumulator<T>>(load(b[l + j * b_col]));
  }
};

int64_t leading(std::span<const int64_t> sizes, size_t trailing) {
  return count_of(sizes.first(sizes.size() - trailing));
}

/// matmul_packed by panels [P][ceil(k / interleave)][groups * width][interleave].
template <typename A, typename W>
void multiply_panels(const Call& call) {
  using Sum = std::conditional_t<!std::is_integral_v<A>, double, uint64_t>;
  using Result = std::conditional_t<std::is_same_v<W, Half> || std::is_same_v<W, BFloat16>, float, A>;
  const View& a = call.operands[0];
  const std::span<const int64_t> panels = call.operands[1].sizes;
  const int64_t columns = call.results[0].sizes.back(), k = a.sizes.back(), rows = leading(a.sizes, 1);
  const auto groups = call.op.attr<int64_t>("groups"), interleave = call.op.attr_or<int64_t>("interleave", 1);
  const int64_t n = columns / groups, width = panels[2] / groups / interleave;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t panel = column % n / width, at = column / n * width + column % n % width;
      Sum sum{};
      for (int64_t i = 0; i < k; ++i) {
        const int64_t place =
            ((panel * panels[1] + i / interleave) * groups * width + at) * interleave + i % interleave;
        sum += static_cast<Sum>(load(call.in<A>(0)[row * k + i])) * static_cast<Sum>(load(call.in<W>(1)[place]));
      }
      call.out<Result>()[row * columns + column] = store<Result>(static_cast<Compute<Result>>(sum));
    }
}

/// c [rows, n] = a [rows, k] by the transpose of weights [n, k].
template <typename T>
void multiply_rows(const Call& call) {
  using Sum = std::conditional_t<std::is_integral_v<T>, uint32_t, double>;
  const int64_t k = call.operands[0].sizes.back(), n = call.operands[1].sizes[0];
  const int64_t rows = leading(call.operands[0].sizes, 1);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < n; ++column) {
      Sum sum{};
      for (int64_t i = 0; i < k; ++i)
        sum += static_cast<Sum>(call.in<T>(0)[row * k + i]) * static_cast<Sum>(call.in<int8_t>(1)[column * k + i]);
      call.out<T>()[row * n + column] = static_cast<T>(sum);
    }
}

}  // namespace

namespace kernels {

void reduce_sum(const Call& call) {
  dispatch_number(call.operands[0].dtype, [&]<typename T>(Tag<T>) {
    using Total = Accumulator<T>;
    std::vector<Total> sums(static_cast<size_t>(call.count()));
    reduce<T>(call, sums.data(), [](Total& sum, T x) { sum += static_cast<Total>(load(x)); });
    store_all<T>(sums, call.out<T>());
  });
}

void reduce_max(const Call& call) {
  dispatch_number(call.operands[0].dtype, [&]<typename T>(Tag<T>) {
    using C = Compute<T>;
    using Limits = std::numeric_limits<C>;
    C lowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    std::fill_n(call.out<T>(), call.count(), store<T>(lowest));
    reduce<T>(call, call.out<T>(), [](T& largest, T x) {
      C value = load(x);
      if (value > load(largest) || value != value) largest = x;  // a NaN, once there, stays: nothing is greater
    });
  });
}

void matmul(const Call& call) {
  const View& a = call.operands[0];
  bool transposed = call.op.attr_or("transpose_b", false);
  int64_t n = call.results[0].sizes.back();
  int64_t k = a.sizes.back();
  dispatch_number(a.dtype, [&]<typename T>(Tag<T>) {
    std::vector<Accumulator<T>> sums(static_cast<size_t>(call.count()));
    int64_t m = leading(a.sizes, 1);
    Product<T>{m, n, k, k, 1, transposed ? 1 : n, transposed ? k : 1}.run(call.in<T>(0), call.in<T>(1), sums.data());
    store_all<T>(sums, call.out<T>());
  });
}

void outer(const Call& call) {
  int64_t m = call.results[0].sizes[0];
  int64_t n = call.results[0].sizes[1];
  int64_t rows = m * n == 0 ? 0 : leading(call.operands[0].sizes, 1);
  dispatch_number(call.operands[0].dtype, [&]<typename T>(Tag<T>) {
    std::vector<Accumulator<T>> sums(static_cast<size_t>(m * n));
    for (int64_t r = 0; r < rows; ++r)
      Product<T>{m, n, 1, 1, 0, 0, 1}.run(call.in<T>(0) + r * m, call.in<T>(1) + r * n, sums.data());
    if (!call.op.attr_or("round_to_f16", false)) return store_all<T>(sums, call.out<T>());
    for (size_t i = 0; i < sums.size(); ++i) call.out<Half>()[i] = store<Half>(static_cast<float>(sums[i]));
  });
}

void batch_matmul(const Call& call) {
  const View& a = call.operands[0];
  bool ta = call.op.attr_or("transpose_a", false);
  bool tb = call.op.attr_or("transpose_b", false);
  auto out = call.results[0].sizes;
  int64_t m = out[out.size() - 2];
  int64_t n = out[out.size() - 1];
  int64_t k = a.sizes[a.sizes.size() - (ta ? 2 : 1)];
  int64_t batches = m * n == 0 ? 0 : leading(a.sizes, 2);
  dispatch_number(a.dtype, [&]<typename T>(Tag<T>) {
    std::vector<Accumulator<T>> sums(static_cast<size_t>(call.count()));
    Product<T> product{m, n, k, ta ? 1 : k, ta ? m : 1, tb ? 1 : n, tb ? k : 1};
    for (int64_t i = 0; i < batches; ++i)
      product.run(call.in<T>(0) + i * m * k, call.in<T>(1) + i * k * n, sums.data() + i * m * n);
    store_all<T>(sums, call.out<T>());
  });
}

void matmul_packed(const Call& call) {
  dispatch_number(call.operands[0].dtype, [&]<typename A>(Tag<A>) {
    if (call.operands[1].dtype == call.operands[0].dtype) return multiply_panels<A, A>(call);
    dispatch_floating(call.operands[1].dtype, [&]<typename W>(Tag<W>) {
      if constexpr (std::is_same_v<A, float>) multiply_panels<A, W>(call);
    });
  });
}

void matmul_rows(const Call& call) {
  if (call.operands[0].dtype == DType::kF32) return multiply_rows<float>(call);
  multiply_rows<int32_t>(call);
}

}  // namespace kernels
}  // namespace weft::interpreter
