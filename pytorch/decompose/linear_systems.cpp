// Systems of linear equations in a program that runs without PyTorch: small ones are eliminated column by column, with
// the largest pivot in front (G. H. Golub, C. F. Van Loan, Matrix Computations, 4.2 and 3.4). A matrix that can't be
// inverted gives infinities and NaNs, where PyTorch raises an error: there is nobody to raise it to.

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "decompose/parts.h"
#include "record/recording.h"

namespace weft::decompose {
namespace {

using Pair = std::tuple<Tensor, Tensor>;

const auto kInverse = aten<Tensor(const Tensor&)>("aten::linalg_inv", "");
const auto kInverseEx = aten<Pair(const Tensor&, bool)>("aten::linalg_inv_ex", "");
const auto kSolve = aten<Tensor(const Tensor&, const Tensor&, bool)>("aten::linalg_solve", "");
const auto kSolveEx = aten<Pair(const Tensor&, const Tensor&, bool, bool)>("aten::linalg_solve_ex", "");
const auto kDeterminant = aten<Tensor(const Tensor&)>("aten::linalg_det", "");
const auto kLogDeterminant = aten<Pair(const Tensor&)>("aten::linalg_slogdet", "");
const auto kLogdet = aten<Tensor(const Tensor&)>("aten::logdet", "");
const auto kCholesky = aten<Tensor(const Tensor&, bool)>("aten::linalg_cholesky", "");
const auto kCholeskyEx = aten<Pair(const Tensor&, bool, bool)>("aten::linalg_cholesky_ex", "");
const auto kOldCholesky = c10::Dispatcher::singleton().findSchema({"aten::cholesky", ""});
const auto kTriangular =
    aten<Tensor(const Tensor&, const Tensor&, bool, bool, bool)>("aten::linalg_solve_triangular", "");
const auto kCholeskySolve = aten<Tensor(const Tensor&, const Tensor&, bool)>("aten::cholesky_solve", "");
const auto kCholeskyInverse = aten<Tensor(const Tensor&, bool)>("aten::cholesky_inverse", "");

/// Each column is some dozen operations.
constexpr int64_t kMostColumns = 32;

bool is_ours(const Tensor& a) {
  return record::Recording::is_alone() && a.dim() >= 2 && a.numel() > 0 && a.size(-1) == a.size(-2) &&
         a.size(-1) <= kMostColumns &&
         (a.scalar_type() == at::kFloat || a.scalar_type() == at::kDouble || a.is_complex());
}

bool are_ours(const Tensor& a, const Tensor& b) {
  return is_ours(a) && b.dim() >= 2 && b.numel() > 0 && a.scalar_type() == b.scalar_type();
}

/// Element 0 of the last two dims, which are kept.
Tensor corner(const Tensor& block) { return block.narrow(-1, 0, 1).narrow(-2, 0, 1); }

/// Rows of numbers without those in front that are zeros: what elimination leaves of [..., n, n + k].
struct Eliminated {
  std::vector<Tensor> rows;  ///< row i is [..., 1, n - i + k]: its pivot first
  Tensor sign;               ///< [..., 1]: -1 where an odd number of rows changed places
};

Eliminated eliminated(Tensor block, int64_t n) {
  Eliminated found;
  for (int64_t m = n; m > 1; --m) {
    const Tensor place = block.select(-1, 0).abs().argmax(-1, true);
    const Tensor is_there = at::arange(m, place.options()).eq(place).unsqueeze(-1);
    const Tensor top = select(is_there, block, at::Scalar(0)).sum(-2, true);
    const Tensor rest = at::where(is_there, block.narrow(-2, 0, 1), block).narrow(-2, 1, m - 1);
    const int64_t width = block.size(-1) - 1;
    block = rest.narrow(-1, 1, width) - rest.narrow(-1, 0, 1) / top.narrow(-1, 0, 1) * top.narrow(-1, 1, width);
    found.rows.push_back(top);
    const Tensor ones = at::ones(place.sizes(), block.options());
    const Tensor sign = at::where(place.eq(0), ones, -ones);
    found.sign = found.sign.defined() ? found.sign * sign : sign;
  }
  found.rows.push_back(block);
  if (!found.sign.defined()) found.sign = at::ones({1}, block.options());
  return found;
}

/// The number of the first pivot that is zero, from 1 on, or 0: int32 [...].
Tensor first_failure(const std::vector<Tensor>& pivots) {
  Tensor info;
  for (auto i = static_cast<int64_t>(pivots.size()); i-- > 0;) {
    const Tensor fails = pivots[static_cast<size_t>(i)].squeeze(-1).squeeze(-1);
    const Tensor none = at::zeros(fails.sizes(), fails.options().dtype(at::kInt));
    info = at::where(fails, none + (i + 1), info.defined() ? info : none);
  }
  return info;
}

/// The dims in front of the last two, of both.
Dims common_batch(const Tensor& a, const Tensor& b) {
  return at::infer_size_dimvector(a.sizes().slice(0, static_cast<size_t>(a.dim() - 2)),
                                  b.sizes().slice(0, static_cast<size_t>(b.dim() - 2)));
}

/// A X = B for [..., n, n] and [..., n, k], and whether there is a solution, as LAPACK says it.
Pair solution(const Tensor& a, const Tensor& b) {
  const int64_t n = a.size(-1), k = b.size(-1);
  Dims shape = common_batch(a, b);
  shape.push_back(n);
  shape.push_back(n);
  const Tensor all_a = a.expand(shape);
  shape.back() = k;
  const Eliminated found = eliminated(at::cat({all_a, b.expand(shape)}, -1), n);
  Tensor x;
  std::vector<Tensor> fails;
  for (int64_t i = n; i-- > 0;) {
    const Tensor& row = found.rows[static_cast<size_t>(i)];
    const int64_t known = n - 1 - i;
    Tensor right = row.narrow(-1, known + 1, k);
    if (known > 0) right = right - at::matmul(row.narrow(-1, 1, known), x);
    right = right / row.narrow(-1, 0, 1);
    x = known > 0 ? at::cat({right, x}, -2) : right;
    const Tensor pivot = row.narrow(-1, 0, 1);
    fails.insert(fails.begin(), (pivot.is_complex() ? pivot.abs() : pivot).eq(0));
  }
  return {x, first_failure(fails)};
}

Tensor identity(const Tensor& like) {
  const auto real = like.options().dtype(c10::toRealValueType(like.scalar_type()));
  return at::eye(like.size(-1), real).to(like.scalar_type());
}

Pair inverse_of(const Tensor& a) { return solution(a, identity(a)); }

Tensor inverse(c10::DispatchKeySet keys, const Tensor& a) {
  return is_ours(a) ? std::get<0>(inverse_of(a)) : kInverse.redispatch(below(keys), a);
}

Pair inverse_ex(c10::DispatchKeySet keys, const Tensor& a, bool check_errors) {
  return is_ours(a) ? inverse_of(a) : kInverseEx.redispatch(below(keys), a, check_errors);
}

/// Whether b is a batch of vectors, by torch.linalg.solve's rule.
bool is_vector(const Tensor& a, const Tensor& b) {
  return b.dim() == 1 || (a.dim() - 1 == b.dim() && b.sizes() == a.sizes().slice(0, static_cast<size_t>(a.dim() - 1)));
}

std::optional<Pair> solved(const Tensor& a, const Tensor& b, bool left) {
  if (!is_ours(a) || b.dim() < 1) return std::nullopt;
  const bool vector = is_vector(a, b);
  const Tensor right = vector ? b.unsqueeze(-1) : b;
  const bool fits = left ? right.size(-2) == a.size(-1) : right.size(-1) == a.size(-1);
  if (!are_ours(a, right) || !fits || (vector && !left)) return std::nullopt;
  if (!left) {
    auto [x, info] = solution(a.mT(), right.mT());
    return Pair{x.mT(), info};
  }
  auto [x, info] = solution(a, right);
  return Pair{vector ? x.squeeze(-1) : x, info};
}

Tensor solve(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b, bool left) {
  const auto found = solved(a, b, left);
  return found ? std::get<0>(*found) : kSolve.redispatch(below(keys), a, b, left);
}

Pair solve_ex(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b, bool left, bool check_errors) {
  const auto found = solved(a, b, left);
  return found ? *found : kSolveEx.redispatch(below(keys), a, b, left, check_errors);
}

/// The pivots, each [...], and the sign of the rows' order.
std::tuple<std::vector<Tensor>, Tensor> pivots_of(const Tensor& a) {
  const Eliminated found = eliminated(a, a.size(-1));
  std::vector<Tensor> pivots;
  for (const Tensor& row : found.rows) pivots.push_back(row.select(-1, 0).squeeze(-1));
  return {pivots, found.sign.squeeze(-1)};
}

Tensor determinant(c10::DispatchKeySet keys, const Tensor& a) {
  if (!is_ours(a)) return kDeterminant.redispatch(below(keys), a);
  auto [pivots, product] = pivots_of(a);
  for (const Tensor& pivot : pivots) product = product * pivot;
  return product;
}

Pair sign_and_log(const Tensor& a) {
  auto [pivots, sign] = pivots_of(a);
  Tensor log;
  for (const Tensor& pivot : pivots) {
    sign = sign * pivot.sgn();
    const Tensor one = pivot.abs().log();
    log = log.defined() ? log + one : one;
  }
  return {sign, log};
}

Pair log_determinant(c10::DispatchKeySet keys, const Tensor& a) {
  return is_ours(a) ? sign_and_log(a) : kLogDeterminant.redispatch(below(keys), a);
}

Tensor logdet(c10::DispatchKeySet keys, const Tensor& a) {
  if (!is_ours(a) || a.is_complex()) return kLogdet.redispatch(below(keys), a);
  const auto [sign, log] = sign_and_log(a);
  return select(sign.eq(-1), at::Scalar(std::numeric_limits<double>::quiet_NaN()), log);
}

// ---- Cholesky

/// L of a = L L^T, of which only the lower half is read; and which leading minor isn't positive, from 1 on, or 0.
Pair lower_factor(const Tensor& a) {
  const int64_t n = a.size(-1);
  Tensor block = a;
  std::vector<Tensor> columns, fails;
  for (int64_t i = 0; i < n; ++i) {
    const Tensor pivot = corner(block);
    const Tensor real = a.is_complex() ? at::real(pivot) : pivot;
    fails.push_back(real.gt(0).logical_not());
    const Tensor root = real.sqrt().to(a.scalar_type());
    Tensor column = root;
    if (i + 1 < n) {
      const Tensor below = block.narrow(-1, 0, 1).narrow(-2, 1, n - i - 1) / root;
      column = at::cat({root, below}, -2);
      block = block.narrow(-1, 1, n - i - 1).narrow(-2, 1, n - i - 1) - below * below.mH();
    }
    Dims above(column.sizes());
    above[above.size() - 2] = i;
    columns.push_back(i == 0 ? column : at::cat({at::zeros(above, a.options()), column}, -2));
  }
  return {at::cat(columns, -1), first_failure(fails)};
}

Pair factor(const Tensor& a, bool upper) {
  if (!upper) return lower_factor(a);
  auto [lower, info] = lower_factor(a.mH());
  return {lower.mH(), info};
}

Tensor cholesky(c10::DispatchKeySet keys, const Tensor& a, bool upper) {
  return is_ours(a) ? std::get<0>(factor(a, upper)) : kCholesky.redispatch(below(keys), a, upper);
}

/// torch.cholesky, which PyTorch 2.14 no longer has.
Tensor old_cholesky(c10::DispatchKeySet keys, const Tensor& a, bool upper) {
  if (is_ours(a)) return std::get<0>(factor(a, upper));
  return kOldCholesky->typed<Tensor(const Tensor&, bool)>().redispatch(below(keys), a, upper);
}

Pair cholesky_ex(c10::DispatchKeySet keys, const Tensor& a, bool upper, bool check_errors) {
  return is_ours(a) ? factor(a, upper) : kCholeskyEx.redispatch(below(keys), a, upper, check_errors);
}

// ---- triangular matrices

/// A X = B, of which one half of A is read.
Tensor substituted(const Tensor& a, const Tensor& b, bool upper, bool has_unit_diagonal) {
  const int64_t n = a.size(-1);
  Tensor x;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = upper ? n - 1 - step : step;
    Tensor right = b.narrow(-2, i, 1);
    if (step > 0) right = right - at::matmul(a.narrow(-2, i, 1).narrow(-1, upper ? i + 1 : 0, step), x);
    if (!has_unit_diagonal) right = right / a.narrow(-2, i, 1).narrow(-1, i, 1);
    if (step == 0)
      x = right;
    else
      x = upper ? at::cat({right, x}, -2) : at::cat({x, right}, -2);
  }
  return x;
}

Tensor triangular(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b, bool upper, bool left,
                  bool unitriangular) {
  if (!are_ours(a, b) || a.size(-1) != b.size(left ? -2 : -1))
    return kTriangular.redispatch(below(keys), a, b, upper, left, unitriangular);
  Dims shape = common_batch(a, b);
  shape.push_back(b.size(-2));
  shape.push_back(b.size(-1));
  const Tensor right = b.expand(shape);
  return left ? substituted(a, right, upper, unitriangular)
              : substituted(a.mT(), right.mT(), !upper, unitriangular).mT();
}

Tensor solved_by_factor(const Tensor& b, const Tensor& factor, bool upper) {
  const Tensor lower = upper ? factor.mH() : factor;
  return substituted(lower.mH(), substituted(lower, b, false, false), true, false);
}

Tensor cholesky_solve(c10::DispatchKeySet keys, const Tensor& b, const Tensor& factor, bool upper) {
  const bool is_usual = are_ours(factor, b) && factor.size(-1) == b.size(-2);
  return is_usual ? solved_by_factor(b, factor, upper) : kCholeskySolve.redispatch(below(keys), b, factor, upper);
}

Tensor cholesky_inverse(c10::DispatchKeySet keys, const Tensor& factor, bool upper) {
  if (!is_ours(factor)) return kCholeskyInverse.redispatch(below(keys), factor, upper);
  return solved_by_factor(identity(factor), factor, upper);
}

}  // namespace
}  // namespace weft::decompose

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  using namespace weft::decompose;
  m.impl("linalg_inv", inverse);
  m.impl("linalg_inv_ex", inverse_ex);
  m.impl("linalg_solve", solve);
  m.impl("linalg_solve_ex", solve_ex);
  m.impl("linalg_det", determinant);
  m.impl("linalg_slogdet", log_determinant);
  m.impl("logdet", logdet);
  m.impl("linalg_cholesky", cholesky);
  m.impl("linalg_cholesky_ex", cholesky_ex);
  if (kOldCholesky) m.impl("cholesky", old_cholesky);
  m.impl("linalg_solve_triangular", triangular);
  m.impl("cholesky_solve", cholesky_solve);
  m.impl("cholesky_inverse", cholesky_inverse);
}
