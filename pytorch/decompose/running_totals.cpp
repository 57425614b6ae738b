// Running totals along a dim, in log2(n) steps.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/le.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>

#include "decompose/decompose.h"
#include "decompose/parts.h"

namespace weft::decompose {
namespace {

/// Tensors of one shape: one for a sum, value and index for a running maximum.
using Parts = std::vector<Tensor>;

/// A prefix scan: combines each element along a dim with all before it. `combine` takes the totals of the earlier and
/// of the later elements.
template <typename Combine>
Parts running(Parts parts, int64_t dim, Combine combine) {
  int64_t size = parts[0].dim() > 0 ? parts[0].size(dim) : 1;
  for (int64_t shift = 1; shift < size; shift *= 2) {
    Parts early, late;
    for (const Tensor& part : parts) {
      early.push_back(part.narrow(dim, 0, size - shift));
      late.push_back(part.narrow(dim, shift, size - shift));
    }
    Parts joined = combine(early, late);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = at::cat({parts[i].narrow(dim, 0, shift), joined[i]}, dim);
  }
  return parts;
}

Tensor cumsum(const Tensor& given, int64_t dim, std::optional<at::ScalarType> dtype) {
  Tensor x = summable(given, dtype);
  auto add = [](const Parts& early, const Parts& late) -> Parts { return {early[0] + late[0]}; };
  return running({wide(x)}, dim, add)[0].to(x.scalar_type());
}

Tensor cumprod(const Tensor& given, int64_t dim, std::optional<at::ScalarType> dtype) {
  Tensor x = summable(given, dtype);
  auto multiply = [](const Parts& early, const Parts& late) -> Parts { return {early[0] * late[0]}; };
  return running({wide(x)}, dim, multiply)[0].to(x.scalar_type());
}

Tensor logcumsumexp(const Tensor& x, int64_t dim) {
  auto add = [](const Parts& early, const Parts& late) -> Parts { return {at::logaddexp(early[0], late[0])}; };
  return running({wide(x)}, dim, add)[0].to(x.scalar_type());
}

/// A running maximum or minimum. Of equal elements the later one is taken, and a NaN stays.
template <Tensor (*wins)(const Tensor&, const Tensor&)>
std::tuple<Tensor, Tensor> running_extremum(const Tensor& x, int64_t dim) {
  auto later = [](const Parts& early, const Parts& late) -> Parts {
    Tensor takes = wins(late[0], early[0]).bitwise_and(early[0].eq(early[0])).bitwise_or(late[0].ne(late[0]));
    return {at::where(takes, late[0], early[0]), at::where(takes, late[1], early[1])};
  };
  Parts result = running({x, positions(x, dim).expand(x.sizes()).clone()}, dim, later);
  return {result[0], result[1]};
}

}  // namespace

void add_running_totals(Table& table) {
  table.add("cumsum", "", cumsum);
  table.add("cumprod", "", cumprod);
  table.add("logcumsumexp", "", logcumsumexp);
  table.add("cummax", "", running_extremum<at::ge>);
  table.add("cummin", "", running_extremum<at::le>);
}

}  // namespace weft::decompose
