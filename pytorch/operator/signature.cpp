#include "operator/signature.h"

#include <algorithm>
#include <locale>
#include <sstream>

namespace weft::torch_operator {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return at::kBool;
    case DType::kI8:
      return at::kChar;
    case DType::kU8:
      return at::kByte;
    case DType::kI16:
      return at::kShort;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF32:
      return at::kFloat;
    case DType::kF64:
      return at::kDouble;
  }
  internal_error("no PyTorch type for dtype number {}", static_cast<int>(dtype));
}

std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return DType::kBool;
    case at::kChar:
      return DType::kI8;
    case at::kByte:
      return DType::kU8;
    case at::kShort:
      return DType::kI16;
    case at::kInt:
      return DType::kI32;
    case at::kLong:
      return DType::kI64;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kFloat:
      return DType::kF32;
    case at::kDouble:
      return DType::kF64;
    default:
      return std::nullopt;
  }
}

namespace {

std::string text_of(const c10::SymInt& size) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // no grouped digits
  text << size;
  return text.str();
}

/// A tensor as an IR type would print: f32[3,8]; other dtypes as PyTorch names them.
std::string describe(const at::Tensor& tensor) {
  auto dtype = dtype_of(tensor.scalar_type());
  std::string text = dtype ? std::string(name_of(*dtype)) : std::string(toString(tensor.scalar_type()));
  text += '[';
  bool first = true;
  for (const c10::SymInt& size : tensor.sym_sizes()) {
    text += (first ? "" : ",") + text_of(size);
    first = false;
  }
  return text + ']';
}

template <typename Int>
Int size_at(at::TensorList tensors, ir::Binder::Place place) {
  const at::Tensor& tensor = tensors[place.input];
  if constexpr (std::is_same_v<Int, int64_t>)
    return tensor.sizes()[place.dim];
  else
    return tensor.sym_sizes()[place.dim];
}

std::vector<Signature::Tensor> with_types(const std::vector<ir::Binder::Tensor>& tensors) {
  std::vector<Signature::Tensor> result;
  for (const ir::Binder::Tensor& tensor : tensors) result.push_back({tensor, scalar_type(tensor.type.dtype)});
  return result;
}

}  // namespace

bool SymbolicSizes::multiply(c10::SymInt& product, const c10::SymInt& size) {
  auto left = product.maybe_as_int(), right = size.maybe_as_int();
  if (left && right && !ir::PlainSizes::multiply(*left, *right)) return false;
  product = left && right ? c10::SymInt(*left) : product * size;
  return true;
}

bool SymbolicSizes::add(c10::SymInt& sum, const c10::SymInt& term) {
  auto left = sum.maybe_as_int(), right = term.maybe_as_int();
  if (left && right && !ir::PlainSizes::add(*left, *right)) return false;
  sum = left && right ? c10::SymInt(*left) : sum + term;
  return true;
}

Signature::Signature(const ir::Program& program)
    : binder_(program), inputs_(with_types(binder_.inputs())), outputs_(with_types(binder_.outputs())) {}

void Signature::misfit(at::TensorList tensors, size_t input) const {
  user_error("weft::call: {}, but got {}", binder_.requirement(input), describe(tensors[input]));
}

void Signature::too_large(const Tensor& tensor) {
  user_error("weft::call: a size of '{}' overflows 64 bits; it is {}", tensor.name, ir::to_string(tensor.type));
}

void Signature::check_kinds(at::TensorList tensors) const {
  check(tensors.size() == inputs_.size(), "weft::call: program @{} takes {} inputs, but got {}", binder_.program(),
        inputs_.size(), tensors.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    check(tensor.defined(), "weft::call: input {} of program @{} is undefined", i, binder_.program());
    if (tensor.scalar_type() != inputs_[i].dtype) misfit(tensors, i);
    if (tensor.dim() != static_cast<int64_t>(inputs_[i].shape.size())) misfit(tensors, i);
    check(tensor.layout() == at::kStrided, "weft::call: input {} '{}' of program @{} must be a dense tensor", i,
          inputs_[i].name, binder_.program());
  }
}

template <typename Arithmetic>
std::vector<typename Arithmetic::Int> Signature::bind_sizes(at::TensorList tensors) const {
  check_kinds(tensors);
  std::vector<typename Arithmetic::Int> values;
  auto size = [&](ir::Binder::Place place) { return size_at<typename Arithmetic::Int>(tensors, place); };
  if (auto wrong = binder_.bind<Arithmetic>(size, values)) {
    auto text = [&](ir::Binder::Place place) { return text_of(size_at<c10::SymInt>(tensors, place)); };
    auto given = [&](size_t input) { return describe(tensors[input]); };
    user_error("weft::call: {}", binder_.complaint(*wrong, text, given));
  }
  return values;
}

template std::vector<int64_t> Signature::bind_sizes<ir::PlainSizes>(at::TensorList) const;
template std::vector<c10::SymInt> Signature::bind_sizes<SymbolicSizes>(at::TensorList) const;

}  // namespace weft::torch_operator
