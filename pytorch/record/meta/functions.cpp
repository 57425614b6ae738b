// Shapes of elementwise functions that PyTorch composes of others, of special functions, and of sums over all elements.

#include <ATen/ScalarOps.h>
#include <ATen/ops/all_meta_dispatch.h>
#include <ATen/ops/any_meta_dispatch.h>
#include <ATen/ops/clamp_max_meta_dispatch.h>
#include <ATen/ops/clamp_meta_dispatch.h>
#include <ATen/ops/clamp_min_meta_dispatch.h>
#include <ATen/ops/copysign_meta_dispatch.h>
#include <ATen/ops/eq_meta_dispatch.h>
#include <ATen/ops/i0_meta_dispatch.h>
#include <ATen/ops/igamma_meta_dispatch.h>
#include <ATen/ops/igammac_meta_dispatch.h>
#include <ATen/ops/mean_meta_dispatch.h>
#include <ATen/ops/mul_meta_dispatch.h>
#include <ATen/ops/nextafter_meta_dispatch.h>
#include <ATen/ops/polygamma_meta_dispatch.h>
#include <ATen/ops/round_meta_dispatch.h>
#include <ATen/ops/special_entr_meta_dispatch.h>
#include <ATen/ops/special_erfcx_meta_dispatch.h>
#include <ATen/ops/special_i0e_meta_dispatch.h>
#include <ATen/ops/special_i1_meta_dispatch.h>
#include <ATen/ops/special_i1e_meta_dispatch.h>
#include <ATen/ops/special_log_ndtr_meta_dispatch.h>
#include <ATen/ops/special_ndtri_meta_dispatch.h>
#include <ATen/ops/special_xlog1py_meta_dispatch.h>
#include <ATen/ops/special_zeta_meta_dispatch.h>
#include <ATen/ops/sum_meta_dispatch.h>

#include "record/meta/shapes.h"

namespace weft::record {

namespace {

using at::Tensor;
using at::native::wrapped_scalar_tensor;

// ---- by element

Tensor is(const Tensor& x) { return at::meta::eq(x, x); }
Tensor both(const Tensor& x, const Tensor& y) { return at::meta::eq(x, y); }

Tensor copysign(const Tensor& x, const at::Scalar& y) { return at::meta::copysign(x, wrapped_scalar_tensor(y)); }

using Bound = std::optional<Tensor>;

Tensor clamp(const Tensor& x, const Bound& low, const Bound& high) { return at::meta::clamp(x, low, high); }

using Number = std::optional<double>;
Tensor nan_to_num(const Tensor& x, Number, Number, Number) { return same(x); }

Tensor degrees(const Tensor& x) { return at::meta::mul(x, wrapped_scalar_tensor(1.5)); }

std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor& x) {
  return {contiguous(x.sizes(), x.options()), contiguous(x.sizes(), x.options())};
}

// ---- over all elements

/// A result of no dims.
Tensor number(const Tensor& x, at::ScalarType type) { return contiguous({}, x.options().dtype(type)); }

using Type = std::optional<at::ScalarType>;
Tensor sum(const Tensor& x, Type type) { return at::meta::sum(x, at::OptionalIntArrayRef(), false, type); }
Tensor mean(const Tensor& x, Type type) { return at::meta::mean(x, at::OptionalIntArrayRef(), false, type); }

Tensor prod(const Tensor& x, Type type) {
  const bool is_whole = at::isIntegralType(x.scalar_type(), /*includeBool=*/true);
  return number(x, type.value_or(is_whole ? at::kLong : x.scalar_type()));
}

Tensor extreme(const Tensor& x, const char* function) {
  TORCH_CHECK(x.numel() > 0, function,
              "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
              "'dim' argument.");
  return number(x, x.scalar_type());
}
Tensor max(const Tensor& x) { return extreme(x, "max"); }
Tensor min(const Tensor& x) { return extreme(x, "min"); }

Tensor dot(const Tensor& x, const Tensor& y) {
  TORCH_CHECK(x.dim() == 1 && y.dim() == 1, "1D tensors expected, but got ", x.dim(), "D and ", y.dim(), "D tensors");
  TORCH_CHECK(x.scalar_type() == y.scalar_type(), "dot : expected both vectors to have same dtype, but found ",
              x.scalar_type(), " and ", y.scalar_type());
  TORCH_CHECK(x.numel() == y.numel(), "inconsistent tensor size, expected tensor [", x.numel(), "] and src [",
              y.numel(), "] to have the same number of elements, but got ", x.numel(), " and ", y.numel(),
              " elements respectively");
  return number(x, x.scalar_type());
}

Tensor trace(const Tensor& x) {
  TORCH_CHECK(x.dim() == 2, "trace: expected a matrix, but got tensor with dim ", x.dim());
  return number(x, at::isIntegralType(x.scalar_type(), true) ? at::kLong : x.scalar_type());
}

void add_special(KernelTable& table) {
  table.add<Tensor(const Tensor&)>("i0", "", at::meta::i0);
  table.add<Tensor(const Tensor&)>("special_entr", "", at::meta::special_entr);
  table.add<Tensor(const Tensor&)>("special_erfcx", "", at::meta::special_erfcx);
  table.add<Tensor(const Tensor&)>("special_i0e", "", at::meta::special_i0e);
  table.add<Tensor(const Tensor&)>("special_i1", "", at::meta::special_i1);
  table.add<Tensor(const Tensor&)>("special_i1e", "", at::meta::special_i1e);
  table.add<Tensor(const Tensor&)>("special_log_ndtr", "", at::meta::special_log_ndtr);
  table.add<Tensor(const Tensor&)>("special_ndtri", "", at::meta::special_ndtri);
  table.add<Tensor(const Tensor&, const Tensor&)>("special_xlog1py", "", at::meta::special_xlog1py);
  table.add<Tensor(const Tensor&, const Tensor&)>("special_zeta", "", at::meta::special_zeta);
  table.add<Tensor(const Tensor&, const Tensor&)>("igamma", "", at::meta::igamma);
  table.add<Tensor(const Tensor&, const Tensor&)>("igammac", "", at::meta::igammac);
  table.add<Tensor(int64_t, const Tensor&)>("polygamma", "", at::meta::polygamma);
}

}  // namespace

void add_functions(KernelTable& table) {
  for (const char* name : {"isnan", "isinf", "logical_not"}) table.add(name, "", is);
  for (const char* name : {"logical_and", "logical_or", "logical_xor"}) table.add(name, "", both);
  table.add("copysign", "Scalar", copysign);
  table.add("clamp", "Tensor", clamp);
  table.add<Tensor(const Tensor&, const Tensor&)>("clamp_min", "Tensor", at::meta::clamp_min);
  table.add<Tensor(const Tensor&, const Tensor&)>("clamp_max", "Tensor", at::meta::clamp_max);
  table.add<Tensor(const Tensor&, int64_t)>("round", "decimals", at::meta::round);
  table.add<Tensor(const Tensor&, const Tensor&)>("nextafter", "", at::meta::nextafter);
  table.add("nan_to_num", "", nan_to_num);
  table.add("deg2rad", "", degrees);
  table.add("rad2deg", "", degrees);
  table.add("log_sigmoid_forward", "", log_sigmoid_forward);
  table.add("sum", "", sum);
  table.add("mean", "", mean);
  table.add("prod", "", prod);
  table.add<Tensor(const Tensor&)>("all", "", at::meta::all);
  table.add<Tensor(const Tensor&)>("any", "", at::meta::any);
  table.add("max", "", max);
  table.add("min", "", min);
  table.add("dot", "", dot);
  table.add("vdot", "", dot);
  table.add("trace", "", trace);
  add_special(table);
}

}  // namespace weft::record
