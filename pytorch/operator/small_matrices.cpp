#include "operator/small_matrices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace weft::torch_operator {
namespace {

using MatrixArguments = std::span<const ExternArgument>;
using Matrices = std::span<const ExternTensor>;

/// The largest number of rows for these kernels: a matrix and its factor fit the first-level cache.
constexpr int64_t kMostRows = 32;

/// A matrix in memory: element (i, j) is at[i * row + j * column].
template <typename T>
struct Matrix {
  T* at = nullptr;
  int64_t row = 0, column = 0;

  T& operator()(int64_t i, int64_t j) const { return at[i * row + j * column]; }
  Matrix transposed() const { return {at, column, row}; }
};

/// Some matrices of equal size, one behind the other.
template <typename T>
struct Batch {
  T* data;
  int64_t count, rows, columns;

  explicit Batch(const ExternTensor& tensor)
      : data(static_cast<T*>(tensor.data)), count(1), rows(tensor.sizes.end()[-2]), columns(tensor.sizes.end()[-1]) {
    for (int64_t size : tensor.sizes.first(tensor.sizes.size() - 2)) count *= size;
  }
  Matrix<T> operator[](int64_t i) const { return {data + i * rows * columns, columns, 1}; }
};

bool is_true(const ExternArgument& argument) {
  return argument.kind == ExternArgument::Kind::kBool && argument.integer != 0;
}

/// Whether the argument is this operand, and the operand is a matrix or several.
bool is_matrix(const ExternArgument& argument, int64_t operand, Matrices operands) {
  return argument.kind == ExternArgument::Kind::kOperand && argument.integer == operand &&
         operand < std::ssize(operands) && operands[static_cast<size_t>(operand)].sizes.size() >= 2;
}

bool is_small_square(const ExternTensor& tensor) {
  const auto rows = tensor.sizes.end()[-2];
  return rows == tensor.sizes.end()[-1] && rows > 0 && rows <= kMostRows;
}

/// Whether two tensors have the same dims in front of their matrices.
bool have_same_batch(const ExternTensor& a, const ExternTensor& b) {
  return std::ranges::equal(a.sizes.first(a.sizes.size() - 2), b.sizes.first(b.sizes.size() - 2));
}

/// Factorises a = l l^T by columns. Only the lower triangles are read and written. False if a is not positive definite.
template <typename T>
bool factorise(int64_t n, Matrix<T> a, Matrix<T> l) {
  for (int64_t j = 0; j < n; ++j) {
    T pivot = a(j, j);
    for (int64_t k = 0; k < j; ++k) pivot -= l(j, k) * l(j, k);
    if (!(pivot > 0) || pivot > std::numeric_limits<T>::max()) return false;
    const T root = std::sqrt(pivot);
    l(j, j) = root;
    for (int64_t i = j + 1; i < n; ++i) {
      T sum = a(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= l(i, k) * l(j, k);
      l(i, j) = sum / root;
    }
  }
  return true;
}

/// x = l^-1 x by rows of x, which has n rows and `columns` columns. l is lower triangular, with ones on its diagonal if
/// `unit`.
template <typename T>
void substitute(int64_t n, int64_t columns, Matrix<T> l, bool unit, Matrix<T> x) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < i; ++k) {
      const T factor = l(i, k);
      for (int64_t c = 0; c < columns; ++c) x(i, c) -= factor * x(k, c);
    }
    if (unit) continue;
    const T pivot = l(i, i);
    for (int64_t c = 0; c < columns; ++c) x(i, c) /= pivot;
  }
}

/// x = u^-1 x, where u is upper triangular: with its rows and columns in reverse order it is lower triangular.
template <typename T>
void substitute_back(int64_t n, int64_t columns, Matrix<T> u, bool unit, Matrix<T> x) {
  const Matrix<T> reversed{u.at + (n - 1) * (u.row + u.column), -u.row, -u.column};
  const Matrix<T> upside_down{x.at + (n - 1) * x.row, -x.row, x.column};
  substitute(n, columns, reversed, unit, upside_down);
}

/// run(T()) for the type of a tensor's elements; false for other than f32 and f64.
template <typename Run>
bool with_type(DType dtype, Run run) {
  if (dtype == DType::kF32) return run(float());
  return dtype == DType::kF64 && run(double());
}

// ---- linalg_cholesky_ex(A, upper, check_errors) -> (L, info)

template <typename T>
bool factorise_all(bool upper, const ExternTensor& of, const ExternTensor& factor, int32_t* info) {
  const Batch<T> from(of), to(factor);
  std::fill_n(to.data, to.count * to.rows * to.rows, T(0));
  std::fill_n(info, to.count, 0);
  for (int64_t i = 0; i < from.count; ++i) {
    const Matrix<T> a = upper ? from[i].transposed() : from[i];
    if (!factorise(from.rows, a, upper ? to[i].transposed() : to[i])) return false;
  }
  return true;
}

bool run_cholesky(MatrixArguments arguments, Matrices operands, Matrices results) {
  if (arguments.size() != 3 || results.size() != 2 || !is_matrix(arguments[0], 0, operands)) return false;
  const ExternTensor &of = operands[0], &factor = results[0];
  if (!is_small_square(of) || !std::ranges::equal(of.sizes, factor.sizes) || of.dtype != factor.dtype ||
      results[1].dtype != DType::kI32)
    return false;
  auto* info = static_cast<int32_t*>(results[1].data);
  return with_type(of.dtype, [&]<typename T>(T) { return factorise_all<T>(is_true(arguments[1]), of, factor, info); });
}

// ---- cholesky_solve(B, L, upper) -> (L L^T)^-1 B

template <typename T>
void solve_by_factor(bool upper, const ExternTensor& right, const ExternTensor& factor, const ExternTensor& solution) {
  const Batch<T> b(right), f(factor), x(solution);
  std::copy_n(b.data, b.count * b.rows * b.columns, x.data);
  for (int64_t i = 0; i < x.count; ++i) {
    const Matrix<T> lower = upper ? f[i].transposed() : f[i];
    substitute(f.rows, x.columns, lower, false, x[i]);
    substitute_back(f.rows, x.columns, lower.transposed(), false, x[i]);
  }
}

/// Whether matrices of these types belong to one solve: B [..., n, k] and A [..., n, n], or B [..., k, n] if `left` is
/// false.
bool are_of_a_solve(const ExternTensor& b, const ExternTensor& a, const ExternTensor& solution, bool left) {
  return is_small_square(a) && (left ? b.sizes.end()[-2] : b.sizes.end()[-1]) == a.sizes.back() &&
         have_same_batch(a, b) && std::ranges::equal(b.sizes, solution.sizes) && a.dtype == b.dtype &&
         b.dtype == solution.dtype;
}

bool run_cholesky_solve(MatrixArguments arguments, Matrices operands, Matrices results) {
  if (arguments.size() != 3 || results.size() != 1 || !is_matrix(arguments[0], 0, operands) ||
      !is_matrix(arguments[1], 1, operands) || !are_of_a_solve(operands[0], operands[1], results[0], true))
    return false;
  return with_type(results[0].dtype, [&]<typename T>(T) {
    solve_by_factor<T>(is_true(arguments[2]), operands[0], operands[1], results[0]);
    return true;
  });
}

// ---- linalg_solve_triangular(A, B, upper, left, unitriangular) -> X with A X = B, or X A = B where it is not `left`

struct Triangle {
  bool upper, left, unit;
};

template <typename T>
void solve_by_triangle(Triangle is, const ExternTensor& triangle, const ExternTensor& right,
                       const ExternTensor& solution) {
  const Batch<T> a(triangle), b(right), x(solution);
  std::copy_n(b.data, b.count * b.rows * b.columns, x.data);
  const int64_t columns = is.left ? x.columns : x.rows;
  for (int64_t i = 0; i < x.count; ++i) {
    // X A = B is A^T X^T = B^T.
    const Matrix<T> factor = is.left ? a[i] : a[i].transposed();
    const Matrix<T> unknown = is.left ? x[i] : x[i].transposed();
    if (is.upper == is.left)
      substitute_back(a.rows, columns, factor, is.unit, unknown);
    else
      substitute(a.rows, columns, factor, is.unit, unknown);
  }
}

bool run_solve_triangular(MatrixArguments arguments, Matrices operands, Matrices results) {
  if (arguments.size() != 5 || results.size() != 1 || !is_matrix(arguments[0], 0, operands) ||
      !is_matrix(arguments[1], 1, operands))
    return false;
  const Triangle is{is_true(arguments[2]), is_true(arguments[3]), is_true(arguments[4])};
  if (!are_of_a_solve(operands[1], operands[0], results[0], is.left)) return false;
  return with_type(results[0].dtype, [&]<typename T>(T) {
    solve_by_triangle<T>(is, operands[0], operands[1], results[0]);
    return true;
  });
}

}  // namespace

ExternKernel small_matrix_kernel(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, ExternKernel>, 3> kKernels = {{
      {"aten.linalg_cholesky_ex.default", run_cholesky},
      {"aten.cholesky_solve.default", run_cholesky_solve},
      {"aten.linalg_solve_triangular.default", run_solve_triangular},
  }};
  const auto found = std::ranges::find(kKernels, name, &std::pair<std::string_view, ExternKernel>::first);
  return found == kKernels.end() ? nullptr : found->second;
}

}  // namespace weft::torch_operator
