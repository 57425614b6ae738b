// Operations whose argument may be a tensor instead of a number, for numbers that differ from call to call.

#include "programs/free_numbers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <map>

namespace weft::programs {

namespace {

using at::Tensor;
using Arguments = at::ArrayRef<c10::IValue>;

/// An argument as a tensor. A number becomes a tensor of no dims with the dtype of `like`.
Tensor tensor(const c10::IValue& argument, const Tensor& like) {
  return argument.isTensor() ? argument.toTensor() : at::scalar_tensor(argument.toScalar(), like.options());
}

Tensor scaled(const Tensor& y, const c10::IValue& alpha) {
  if (alpha.isTensor()) return y * alpha.toTensor();
  return alpha.toScalar().equal(1) ? y : y * alpha.toScalar();
}

template <Tensor (Tensor::*Compare)(const Tensor&) const>
Tensor compare(Arguments a) {
  return (a[0].toTensor().*Compare)(a[1].toTensor().to(a[0].toTensor().scalar_type()));
}

Tensor clamp(const Tensor& x, const c10::IValue& low, const c10::IValue& high) {
  std::optional<Tensor> bounds[2];
  if (!low.isNone()) bounds[0] = tensor(low, x).to(x.scalar_type());
  if (!high.isNone()) bounds[1] = tensor(high, x).to(x.scalar_type());
  return at::clamp(x, bounds[0], bounds[1]);
}

Tensor full(at::IntArrayRef sizes, const Tensor& value, const c10::IValue& dtype) {
  auto type = dtype.isNone() ? c10::get_default_dtype_as_scalartype() : dtype.toScalarType();
  return at::zeros(sizes, at::TensorOptions(type)) + value.to(type);
}

/// The number as a tensor of the dtype of `like`.
Tensor as(const c10::IValue& number, const c10::IValue& like) {
  return tensor(number, like.toTensor()).to(like.toTensor().scalar_type());
}

using Function = Tensor (*)(Arguments);

/// Made at load (base/fork.h).
const auto& functions = *new const std::map<std::string_view, Function>{
    {"aten.add.Tensor", [](Arguments a) { return a[0].toTensor() + scaled(a[1].toTensor(), a[2]); }},
    {"aten.sub.Tensor", [](Arguments a) { return a[0].toTensor() - scaled(a[1].toTensor(), a[2]); }},
    {"aten.add.Scalar", [](Arguments a) { return a[0].toTensor() + scaled(tensor(a[1], a[0].toTensor()), a[2]); }},
    {"aten.sub.Scalar", [](Arguments a) { return a[0].toTensor() - scaled(tensor(a[1], a[0].toTensor()), a[2]); }},
    {"aten.rsub.Scalar", [](Arguments a) { return tensor(a[1], a[0].toTensor()) - scaled(a[0].toTensor(), a[2]); }},
    {"aten.rsub.Tensor", [](Arguments a) { return a[1].toTensor() - scaled(a[0].toTensor(), a[2]); }},
    {"aten.mul.Scalar", [](Arguments a) { return a[0].toTensor() * a[1].toTensor(); }},
    {"aten.div.Scalar", [](Arguments a) { return a[0].toTensor() / a[1].toTensor(); }},
    {"aten.eq.Scalar", compare<&Tensor::eq>},
    {"aten.ne.Scalar", compare<&Tensor::ne>},
    {"aten.lt.Scalar", compare<&Tensor::lt>},
    {"aten.le.Scalar", compare<&Tensor::le>},
    {"aten.gt.Scalar", compare<&Tensor::gt>},
    {"aten.ge.Scalar", compare<&Tensor::ge>},
    {"aten.remainder.Scalar", [](Arguments a) { return at::remainder(a[0].toTensor(), a[1].toTensor()); }},
    {"aten.fmod.Scalar", [](Arguments a) { return at::fmod(a[0].toTensor(), a[1].toTensor()); }},
    {"aten.lerp.Scalar", [](Arguments a) { return at::lerp(a[0].toTensor(), a[1].toTensor(), as(a[2], a[0])); }},
    {"aten.pow.Tensor_Scalar", [](Arguments a) { return at::pow(a[0].toTensor(), a[1].toTensor()); }},
    {"aten.pow.Scalar", [](Arguments a) { return at::pow(a[0].toTensor(), a[1].toTensor()); }},
    {"aten.clamp.default", [](Arguments a) { return clamp(a[0].toTensor(), a[1], a[2]); }},
    {"aten.clamp_min.default", [](Arguments a) { return clamp(a[0].toTensor(), a[1], {}); }},
    {"aten.clamp_max.default", [](Arguments a) { return clamp(a[0].toTensor(), {}, a[1]); }},
    {"aten.leaky_relu.default",
     [](Arguments a) { return at::where(a[0].toTensor().gt(0), a[0].toTensor(), a[0].toTensor() * a[1].toTensor()); }},
    {"aten.full.default", [](Arguments a) { return full(a[0].toIntVector(), a[1].toTensor(), a[2]); }},
    {"aten.scalar_tensor.default", [](Arguments a) { return full({}, a[0].toTensor(), a[1]); }},
    {"aten.full_like.default",
     [](Arguments a) { return as(a[1], a[0]).expand(a[0].toTensor().sizes()).clone(at::MemoryFormat::Contiguous); }},
    {"aten.fill.Scalar",
     [](Arguments a) { return as(a[1], a[0]).expand(a[0].toTensor().sizes()).clone(at::MemoryFormat::Contiguous); }},
    {"aten.fill_.Scalar", [](Arguments a) { return a[0].toTensor().copy_(as(a[1], a[0])); }},
    {"aten.masked_fill.Scalar",
     [](Arguments a) { return at::where(a[1].toTensor(), as(a[2], a[0]), a[0].toTensor()); }},
    {"aten.where.ScalarOther", [](Arguments a) { return at::where(a[0].toTensor(), a[1].toTensor(), as(a[2], a[1])); }},
    {"aten.where.ScalarSelf", [](Arguments a) { return at::where(a[0].toTensor(), as(a[1], a[2]), a[2].toTensor()); }},
    {"aten.addmm.default",
     [](Arguments a) {
       return scaled(a[0].toTensor(), a[3]) + scaled(at::matmul(a[1].toTensor(), a[2].toTensor()), a[4]);
     }},
    {"aten.addcmul.default",
     [](Arguments a) { return a[0].toTensor() + scaled(a[1].toTensor() * a[2].toTensor(), a[3]); }},
    {"aten.addcdiv.default",
     [](Arguments a) { return a[0].toTensor() + scaled(a[1].toTensor() / a[2].toTensor(), a[3]); }},
};

/// The floating dtype that the free numbers get.
at::ScalarType dtype_of_numbers(Arguments arguments, const std::vector<bool>& are_free) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!are_free[i] && arguments[i].isTensor() && arguments[i].toTensor().defined() &&
        at::isFloatingType(arguments[i].toTensor().scalar_type()))
      return arguments[i].toTensor().scalar_type();
  }
  return c10::get_default_dtype_as_scalartype();
}

}  // namespace

bool call_with_tensors(const c10::OperatorHandle& op, std::string_view name, torch::jit::Stack& stack,
                       const std::vector<bool>& are_free) {
  auto dtype = dtype_of_numbers(stack, are_free);
  bool with_tensors = true;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!are_free[i]) continue;
    stack[i] = stack[i].toTensor().to(dtype);
    with_tensors = with_tensors && op.schema().arguments()[i].type()->kind() == c10::TypeKind::TensorType;
  }
  if (with_tensors) {
    op.callBoxed(&stack);
    return true;
  }
  auto function = functions.find(name);
  if (function == functions.end()) return false;
  Tensor result = function->second(stack);
  stack.clear();
  stack.emplace_back(std::move(result));
  return true;
}

}  // namespace weft::programs
