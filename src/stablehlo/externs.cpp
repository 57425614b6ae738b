// Calls of PyTorch that StableHLO has ops for: convolutions, pooling, sorting, scattering, distances, and solvers of
// linear systems. Any other call is the user's error, which quotes the call.
#include <fmt/format.h>

#include <algorithm>

#include "ir/text/call_text.h"
#include "stablehlo/convolution.h"
#include "stablehlo/distances.h"
#include "stablehlo/lowerings.h"
#include "stablehlo/pooling.h"
#include "stablehlo/scattered.h"

namespace weft::stablehlo {

using ir::CallText;

namespace {

/// An extern op and its call.
struct ExternSite {
  const Site& site;
  const CallText& call;

  Emitter& emit() const { return site.emit(); }
  /// The tensor that an argument names. In a ragged scan, rows that the step does not have are zeros.
  Tensor tensor(size_t argument) const {
    const std::optional<size_t> operand = call.operand(argument);
    if (!operand) call.refuse("an argument is None");
    return site.writer.zero_beyond(site.op.operands[*operand]);
  }
  void done(size_t result, Tensor tensor) const { site.writer.set(site.op.results[result], std::move(tensor)); }
};

/// The arguments that aten::convolution and its backward have in common, from argument `first` on.
struct ConvolutionCall {
  ConvolutionCall(const CallText& call, size_t first)
      : options{call.integers(first), call.integers(first + 1), call.integers(first + 2), call.integer(first + 5)},
        is_transposed(call.flag(first + 3)),
        output_padding(call.integers(first + 4)) {}

  /// The type of a transposed convolution's result: the type from which a convolution with the same options would
  /// compute x's type.
  TensorType transposed_type(const TensorType& x, const TensorType& w) const {
    TensorType type{x.dtype, {x.sizes[0], w.sizes[1] * options.groups}};
    for (size_t i = 0; i < options.stride.size(); ++i)
      type.sizes.push_back((x.sizes[i + 2] - 1) * options.stride[i] - 2 * options.padding[i] +
                           options.dilation[i] * (w.sizes[i + 2] - 1) + output_padding[i] + 1);
    return type;
  }

  ConvolutionOptions options;
  bool is_transposed;
  Sizes output_padding;
};

/// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void convolution(const ExternSite& site) {
  const ConvolutionCall call(site.call, 3);
  const Tensor x = site.tensor(0), w = site.tensor(1);
  Tensor y = call.is_transposed
                 ? convolution_by_input(site.emit(), x, call.transposed_type(x.type, w.type), w, call.options)
                 : convolve(site.emit(), x, w, call.options);
  if (site.call.operand(2)) {
    const Tensor bias = site.emit().broadcast(site.tensor(2), y.type.sizes, {1});
    y = site.emit().binary("add", y, bias);
  }
  site.done(0, y);
}

/// (cotangent, input, weight, sizes of the bias, stride, padding, dilation, transposed, output_padding, groups, which)
void convolution_backward(const ExternSite& site) {
  const ConvolutionCall call(site.call, 4);
  const std::vector<bool> wanted = site.call.flags(10);
  const auto wanted_count = static_cast<size_t>(std::ranges::count(wanted, true));
  const size_t count = site.site.op.results.size();
  if (wanted.size() != 3 || (count != 3 && count != wanted_count)) site.call.refuse("it doesn't have three results");
  // Results that are not wanted may be left out.
  const size_t weight = count == 3 || wanted[0] ? 1 : 0, bias = count - 1;
  const Tensor dy = site.tensor(0), x = site.tensor(1), w = site.tensor(2);
  // A transposed convolution is the gradient of a convolution by its input: x and dy change places.
  const bool is_transposed = call.is_transposed;
  if (wanted[0])
    site.done(0, is_transposed ? convolve(site.emit(), dy, w, call.options)
                               : convolution_by_input(site.emit(), dy, x.type, w, call.options));
  if (wanted[1])
    site.done(weight,
              convolution_by_weight(site.emit(), is_transposed ? x : dy, is_transposed ? dy : x, w.type, call.options));
  if (!wanted[2]) return;
  Sizes dims{0};
  for (int64_t i = 2; i < dy.type.rank(); ++i) dims.push_back(i);
  site.done(bias, site.emit().reduce("add", dy, site.emit().constant(0, {dy.type.dtype, {}}), dims));
}

/// The triangle of matrices [..., n, n], with zeros beside it, as PyTorch gives it.
Tensor triangle(Emitter& emit, const Tensor& a, bool is_lower) {
  const TensorType numbers{DType::kI32, a.type.sizes};
  const Tensor row = emit.iota(numbers, a.type.rank() - 2), column = emit.iota(numbers, a.type.rank() - 1);
  return emit.select(emit.compare(is_lower ? "GE" : "LE", row, column), a, emit.like(0, a));
}

/// (matrices, upper, check_errors) -> (factors, i32: which minor is not positive, 0 if none is)
void cholesky(const ExternSite& site) {
  const Tensor a = site.tensor(0);
  const bool is_lower = !site.call.flag(1);
  const std::string type = to_string(a.type);
  const Tensor factor{site.emit().new_name(), a.type};
  site.emit().line(fmt::format("{} = stablehlo.cholesky {}, lower = {} : {}", factor.name, a.name, is_lower, type));
  site.done(0, triangle(site.emit(), factor, is_lower));
  // If there is no factor, StableHLO's is NaN; it doesn't say which minor failed.
  if (site.site.op.results.size() > 1)
    site.site.writer.refuse(site.site.op.results[1], site.call.text() + ", of which StableHLO has the factors alone");
}

struct Triangular {
  bool is_left = true, is_lower = true, has_unit_diagonal = false, is_transposed = false;
};

Tensor solve(const ExternSite& site, const Tensor& a, const Tensor& b, const Triangular& how) {
  const auto batch = [](const Tensor& t) { return Sizes(t.type.sizes.begin(), t.type.sizes.end() - 2); };
  if (batch(a) != batch(b)) site.call.refuse("its operands are not one batch");
  if (std::ranges::find(b.type.sizes, 0) != b.type.sizes.end()) return b;
  const Tensor x{site.emit().new_name(), b.type};
  site.emit().line(fmt::format(
      "{} = \"stablehlo.triangular_solve\"({}, {}) <{{left_side = {}, lower = {}, unit_diagonal = {}, transpose_a = "
      "#stablehlo<transpose {}>}}> : ({}, {}) -> {}",
      x.name, a.name, b.name, how.is_left, how.is_lower, how.has_unit_diagonal,
      how.is_transposed ? "TRANSPOSE" : "NO_TRANSPOSE", to_string(a.type), to_string(b.type), to_string(b.type)));
  return x;
}

/// (A, B, upper, left, unitriangular)
void solve_triangular(const ExternSite& site) {
  const bool is_left = site.call.flag(3);
  site.done(0, solve(site, site.tensor(0), site.tensor(1), {is_left, !site.call.flag(2), site.call.flag(4), false}));
}

/// (B, factor, upper): X of A X = B, where A = L L^T or U^T U.
void cholesky_solve(const ExternSite& site) {
  const Tensor factor = site.tensor(1);
  const bool is_lower = !site.call.flag(2);
  const Tensor half = solve(site, factor, site.tensor(0), {true, is_lower, false, !is_lower});
  site.done(0, solve(site, factor, half, {true, is_lower, false, is_lower}));
}

/// The tensor sorted along a dim, which may be counted from the end, and the first `most` of each row.
void sorted(const ExternSite& site, int64_t dim, bool is_descending, std::optional<int64_t> most) {
  const Tensor x = site.tensor(0);
  if (x.type.rank() == 0) site.call.refuse("it sorts a tensor without dims");
  if (dim < 0) dim += x.type.rank();
  auto [values, places] = site.emit().sort(x, dim, is_descending);
  if (most) {
    values = site.emit().slice(values, dim, 0, *most);
    places = site.emit().slice(places, dim, 0, *most);
  }
  site.done(0, values);
  if (site.site.op.results.size() > 1) site.done(1, places);
}

/// (x, dim, descending)
void sort(const ExternSite& site) { sorted(site, site.call.integer(1), site.call.flag(2), {}); }

/// (x, stable, dim, descending): every sort is stable here.
void sort_stable(const ExternSite& site) { sorted(site, site.call.integer(2), site.call.flag(3), {}); }

/// (x, k, dim, largest, sorted)
void topk(const ExternSite& site) { sorted(site, site.call.integer(2), site.call.flag(3), site.call.integer(1)); }

/// Arguments from `first` on: kernel, stride, padding, ceil_mode, whether padding counts, divisor.
AveragePooling pooling_of(const ExternSite& site, size_t first) {
  AveragePooling pooling;
  pooling.kernel = site.call.integers(first);
  pooling.stride = site.call.integers(first + 1);
  if (pooling.stride.empty()) pooling.stride = pooling.kernel;
  pooling.padding = site.call.integers(first + 2);
  pooling.counts_padding = site.call.flag(first + 4);
  if (!site.call.text().ends_with("None)")) pooling.divisor = site.call.integer(first + 5);
  return pooling;
}

/// (x, kernel, stride, padding, ceil_mode, whether padding counts, divisor)
void average(const ExternSite& site) {
  const Tensor x = site.tensor(0);
  const AveragePooling pooling = pooling_of(site, 1);
  if (pooling.result_of(x.type.sizes) != site.site.writer.type(site.site.op.results[0]).sizes)
    site.call.refuse("ceil_mode adds windows that are not whole");
  site.done(0, average_pool(site.emit(), x, pooling));
}

/// (cotangent, x, kernel, stride, padding, ceil_mode, whether padding counts, divisor)
void average_backward(const ExternSite& site) {
  const Tensor dy = site.tensor(0), x = site.tensor(1);
  const AveragePooling pooling = pooling_of(site, 2);
  if (pooling.result_of(x.type.sizes) != dy.type.sizes) site.call.refuse("ceil_mode adds windows that are not whole");
  site.done(0, average_pool_by_input(site.emit(), dy, x.type, pooling));
}

void check_windows(const ExternSite& site, const Sizes& spatial) {
  if (std::ranges::find(spatial, 0) != spatial.end()) site.call.refuse("it has no windows");
}

/// (x, sizes)
void adaptive_average(const ExternSite& site) {
  check_windows(site, site.call.integers(1));
  site.done(0, adaptive_average_pool(site.emit(), site.tensor(0), site.call.integers(1)));
}

/// (cotangent, x): of three spatial dims
void adaptive_average_backward(const ExternSite& site) {
  const Tensor dy = site.tensor(0), x = site.tensor(1);
  check_windows(site, {dy.type.sizes.end() - 3, dy.type.sizes.end()});
  site.done(0, adaptive_average_pool_by_input(site.emit(), dy, x.type, 3));
}

/// (x, sizes) -> (the largest elements, their indices)
void adaptive_max(const ExternSite& site) {
  check_windows(site, site.call.integers(1));
  site.done(0, adaptive_max_pool(site.emit(), site.tensor(0), site.call.integers(1)));
  if (site.site.op.results.size() > 1)
    site.site.writer.refuse(site.site.op.results[1], site.call.text() + ", whose indices have no lowering");
}

/// How updates are joined. User's error for means of integers.
ScatterReduction reduction_of(const ExternSite& site, size_t name, const Tensor& table) {
  constexpr std::pair<std::string_view, std::string_view> kOps[] = {
      {"sum", "add"}, {"prod", "multiply"}, {"amax", "maximum"}, {"amin", "minimum"}, {"mean", "add"}};
  const std::string_view word = site.call.word(name);
  const auto* found = std::ranges::find(kOps, word, &std::pair<std::string_view, std::string_view>::first);
  if (found == std::end(kOps)) site.call.refuse("its reduction is none of sum, prod, amax, amin and mean");
  if (word == "mean" && !is_floating(table.type.dtype)) site.call.refuse("it is a mean of integers");
  return {found->second, word == "mean", site.call.flag(name + 1)};
}

int64_t counted_from_front(int64_t dim, const Tensor& of) { return dim < 0 ? dim + of.type.rank() : dim; }

/// (x, dim, index, updates, how, whether x itself counts)
void scatter_reduce(const ExternSite& site) {
  const Tensor x = site.tensor(0), index = site.tensor(2), updates = site.tensor(3);
  if (x.type.rank() != index.type.rank()) site.call.refuse("an operand has no dims");
  const int64_t dim = counted_from_front(site.call.integer(1), x);
  site.done(0, join_elements(site.emit(), x, dim, index, updates, reduction_of(site, 4, x)));
}

/// (x, dim, index, updates, how, whether x itself counts)
void index_reduce(const ExternSite& site) {
  const Tensor x = site.tensor(0), index = site.tensor(2), updates = site.tensor(3);
  if (x.type.rank() == 0) site.call.refuse("an operand has no dims");
  const int64_t dim = counted_from_front(site.call.integer(1), x);
  Sizes order{dim}, back;
  for (int64_t i = 0; i < x.type.rank(); ++i)
    if (i != dim) order.push_back(i);
  for (int64_t i = 0; i < x.type.rank(); ++i) back.push_back(std::ranges::find(order, i) - order.begin());
  const Tensor joined = join_rows(site.emit(), site.emit().transpose(x, order), index,
                                  site.emit().transpose(updates, order), reduction_of(site, 4, x));
  site.done(0, site.emit().transpose(joined, back));
}

/// (x, size, dim)
void split_copy(const ExternSite& site) {
  const Tensor x = site.tensor(0);
  const int64_t dim = counted_from_front(site.call.integer(2), x);
  int64_t first = 0;
  for (size_t i = 0; i < site.site.op.results.size(); ++i) {
    const int64_t size = site.site.writer.type(site.site.op.results[i]).sizes[static_cast<size_t>(dim)];
    site.done(i, site.emit().slice(x, dim, first, first + size));
    first += size;
  }
}

/// (x, dim, place)
void select_copy(const ExternSite& site) {
  const Tensor x = site.tensor(0);
  int64_t dim = site.call.integer(1), place = site.call.integer(2);
  if (dim < 0) dim += x.type.rank();
  if (place < 0) place += x.type.sizes[static_cast<size_t>(dim)];
  const Tensor part = site.emit().slice(x, dim, place, place + 1);
  site.done(0, site.emit().reshape(part, site.site.writer.type(site.site.op.results[0]).sizes));
}

/// (x, dim, first, behind the last, step); first and last may be None or counted from the end
void slice_copy(const ExternSite& site) {
  const Tensor x = site.tensor(0);
  const int64_t dim = site.call.integer(1) + (site.call.integer(1) < 0 ? x.type.rank() : 0);
  const int64_t size = x.type.sizes[static_cast<size_t>(dim)], wanted_step = site.call.integer(4);
  if (wanted_step != 1) site.call.refuse("it leaves out elements");
  const auto place = [&](size_t argument) {
    const int64_t given = site.call.integer(argument);
    return std::clamp<int64_t>(given < 0 ? given + size : given, 0, size);
  };
  const int64_t first = place(2);
  site.done(0, site.emit().slice(x, dim, first, std::max(first, place(3))));
}

/// Argument i, the power of a distance: 1 or 2. User's error for another.
int64_t power(const ExternSite& site, size_t i) {
  for (const int64_t p : {1, 2})
    if (site.call.has_number(i, static_cast<double>(p))) return p;
  site.call.refuse("its distances are of a power that is neither 1 nor 2");
}

void check_one_batch(const ExternSite& site, const Tensor& a, const Tensor& b) {
  if (a.type.rank() != b.type.rank() || !std::equal(a.type.sizes.begin(), a.type.sizes.end() - 2, b.type.sizes.begin()))
    site.call.refuse("its operands are not one batch");
}

/// (a, b, p, mode)
void cdist(const ExternSite& site) {
  const Tensor a = site.tensor(0), b = site.tensor(1);
  check_one_batch(site, a, b);
  site.done(0, distances(site.emit(), a, b, power(site, 2)));
}

/// (cotangent, a, b, p, the distances)
void cdist_backward(const ExternSite& site) {
  const Tensor a = site.tensor(1), b = site.tensor(2);
  check_one_batch(site, a, b);
  site.done(0, distances_by_first(site.emit(), site.tensor(0), a, b, power(site, 3), site.tensor(4)));
}

/// (x, p)
void pdist(const ExternSite& site) { site.done(0, distances_within(site.emit(), site.tensor(0), power(site, 1))); }

struct ExternRow {
  std::string_view name;
  void (*lowering)(const ExternSite& site);
};

constexpr ExternRow kExternRows[] = {
    {"aten.convolution.default", convolution},
    {"aten.convolution_backward.default", convolution_backward},
    {"aten.linalg_cholesky_ex.default", cholesky},
    {"aten.linalg_solve_triangular.default", solve_triangular},
    {"aten.cholesky_solve.default", cholesky_solve},
    {"aten.sort.default", sort},
    {"aten.sort.stable", sort_stable},
    {"aten.topk.default", topk},
    {"aten.avg_pool2d.default", average},
    {"aten.avg_pool3d.default", average},
    {"aten.avg_pool2d_backward.default", average_backward},
    {"aten.avg_pool3d_backward.default", average_backward},
    {"aten._adaptive_avg_pool3d.default", adaptive_average},
    {"aten._adaptive_avg_pool3d_backward.default", adaptive_average_backward},
    {"aten.adaptive_max_pool2d.default", adaptive_max},
    {"aten.adaptive_max_pool3d.default", adaptive_max},
    {"aten.scatter_reduce.two", scatter_reduce},
    {"aten.index_reduce.default", index_reduce},
    {"aten.split_copy.Tensor", split_copy},
    {"aten.split_with_sizes_copy.default", split_copy},
    {"aten._pdist_forward.default", pdist},
    {"aten.select_copy.int", select_copy},
    {"aten.slice_copy.Tensor", slice_copy},
    {"aten._cdist_forward.default", cdist},
    {"aten._cdist_backward.default", cdist_backward},
};

}  // namespace

void lowerings::external(const Site& site) {
  std::vector<Sizes> operands;
  for (ir::ValueId id : site.op.operands) operands.push_back(site.writer.type(id).sizes);
  const CallText call("stablehlo", site.op.attr<std::string>("call"), std::move(operands));
  const auto* row = std::ranges::find(kExternRows, call.name(), &ExternRow::name);
  if (row == std::end(kExternRows)) call.refuse("StableHLO has no ops for it here");
  row->lowering(ExternSite{site, call});
}

}  // namespace weft::stablehlo
