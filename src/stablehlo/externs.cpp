// Calls of PyTorch that have ops of StableHLO: convolutions, sorting, and what solves linear systems. Each other call
// is the user's error, which has the call.
#include <fmt/format.h>

#include <algorithm>

#include "stablehlo/call_text.h"
#include "stablehlo/convolution.h"
#include "stablehlo/lowerings.h"

namespace weft::stablehlo {
namespace {

/// An extern op and its call.
struct ExternSite {
  const Site& site;
  const CallText& call;

  Emitter& emit() const { return site.emit(); }
  /// The tensor that argument i names; in a ragged scan the rows that the step does not have are zeros.
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

  /// Of the transposed one: what a convolution with these options would have to be of, to give x.
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
  if (wanted.size() != 3 || (count != 3 && count != wanted_count)) site.call.refuse("it has other results than three");
  // Those that nobody wants may have no places.
  const size_t weight = count == 3 || wanted[0] ? 1 : 0, bias = count - 1;
  const Tensor dy = site.tensor(0), x = site.tensor(1), w = site.tensor(2);
  // A transposed convolution takes dy for x: it is the gradient of one that takes x for dy.
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
  // StableHLO's factors are NaN where there are none; which minor failed it does not say.
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
  if (x.type.rank() == 0) site.call.refuse("it sorts a number");
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

/// (x, stable, dim, descending): each is stable here.
void sort_stable(const ExternSite& site) { sorted(site, site.call.integer(2), site.call.flag(3), {}); }

/// (x, k, dim, largest, sorted)
void topk(const ExternSite& site) { sorted(site, site.call.integer(2), site.call.flag(3), site.call.integer(1)); }

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
};

}  // namespace

void lowerings::external(const Site& site) {
  std::vector<Sizes> operands;
  for (ir::ValueId id : site.op.operands) operands.push_back(site.writer.type(id).sizes);
  const CallText call(site.op.attr<std::string>("call"), std::move(operands));
  const auto* row = std::ranges::find(kExternRows, call.name(), &ExternRow::name);
  if (row == std::end(kExternRows)) call.refuse("StableHLO has no ops for it here");
  row->lowering(ExternSite{site, call});
}

}  // namespace weft::stablehlo
