// Shifts of integers by a number, as products and quotients of powers of two, which have machine code.

#include <ATen/TensorOperators.h>

#include "decompose/parts.h"

namespace weft::decompose {
namespace {

using Shift = Tensor(const Tensor&, const at::Scalar&);

/// How far x is shifted, where it is a number of bits that x has, and the sign isn't one of those shifted in.
std::optional<int64_t> bits_of(const Tensor& x, const at::Scalar& by) {
  const int64_t most = x.scalar_type() == at::kLong ? 63 : 31;
  const bool is_usual = (x.scalar_type() == at::kLong || x.scalar_type() == at::kInt) && by.isIntegral(false);
  const int64_t bits = is_usual ? by.toLong() : -1;
  return bits >= 0 && bits < most ? std::optional(bits) : std::nullopt;
}

const auto kLeft = aten<Shift>("aten::bitwise_left_shift", "Tensor_Scalar");
const auto kRight = aten<Shift>("aten::bitwise_right_shift", "Tensor_Scalar");

/// x << by, and Python's operator for it.
Tensor left(c10::DispatchKeySet keys, const Tensor& x, const at::Scalar& by) {
  const auto bits = bits_of(x, by);
  return bits ? x * (int64_t{1} << *bits) : kLeft.redispatch(below(keys), x, by);
}

/// x >> by, with copies of the sign in front, as dividing and rounding down gives them.
Tensor right(c10::DispatchKeySet keys, const Tensor& x, const at::Scalar& by) {
  const auto bits = bits_of(x, by);
  return bits ? x.div(int64_t{1} << *bits, "floor") : kRight.redispatch(below(keys), x, by);
}

}  // namespace
}  // namespace weft::decompose

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  using namespace weft::decompose;
  m.impl("bitwise_left_shift.Tensor_Scalar", left);
  m.impl("bitwise_right_shift.Tensor_Scalar", right);
  m.impl("__lshift__.Scalar", left);
  m.impl("__rshift__.Scalar", right);
}
