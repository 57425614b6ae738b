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
  for (DType dtype : {DType::kBool, DType::kI8, DType::kU8, DType::kI16, DType::kI32, DType::kI64, DType::kF16,
                      DType::kBF16, DType::kF32, DType::kF64}) {
    if (scalar_type(dtype) == type) return dtype;
  }
  return std::nullopt;
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

// Plain sizes are compared; a comparison of symbolic sizes becomes a guard or, if they are unbacked, a check at run
// time.
bool same(int64_t a, int64_t b) { return a == b; }
bool same(const c10::SymInt& a, const c10::SymInt& b) { return a.sym_eq(b).expect_true(__FILE__, __LINE__); }

at::IntArrayRef sizes_of(const at::Tensor& tensor, int64_t) { return tensor.sizes(); }
c10::SymIntArrayRef sizes_of(const at::Tensor& tensor, const c10::SymInt&) { return tensor.sym_sizes(); }

}  // namespace

Signature::Signature(const ir::Program& program) : program_name_(program.name) {
  for (ir::ValueId id : program.body.args) {
    for (const ir::Dim& dim : program.type(id).shape) {
      if (dim.factor != 1 || dim.symbols.size() != 1) continue;
      if (std::ranges::find(symbols_, dim.symbols[0]) == symbols_.end()) symbols_.push_back(dim.symbols[0]);
    }
  }
  sources_.assign(symbols_.size(), Place{-1, -1});
  for (ir::ValueId id : program.body.args) {
    int input = static_cast<int>(inputs_.size());
    inputs_.push_back(make_tensor(program, id));
    for (int dim = 0; const Size& size : inputs_.back().shape) {
      bool first = size.factor == 1 && size.symbols.size() == 1 && sources_[size.symbols[0]].input < 0;
      if (first)
        sources_[size.symbols[0]] = {input, dim};
      else
        checks_.push_back({input, dim});
      ++dim;
    }
  }
  for (ir::ValueId id : program.body.results) outputs_.push_back(make_tensor(program, id));
}

Signature::Tensor Signature::make_tensor(const ir::Program& program, ir::ValueId id) const {
  const ir::Type& type = program.type(id);
  Tensor tensor{scalar_type(type.dtype), {}, type, program.values[id].name};
  for (const ir::Dim& dim : type.shape) {
    Size size{dim.factor, {}};
    for (const std::string& symbol : dim.symbols) {
      auto found = std::ranges::find(symbols_, symbol);
      check(found != symbols_.end(), "program @{}: symbol {} is no size of any input", program_name_, symbol);
      size.symbols.push_back(static_cast<int>(found - symbols_.begin()));
    }
    tensor.shape.push_back(std::move(size));
  }
  return tensor;
}

void Signature::misfit(at::TensorList tensors, int input, const std::string& why) const {
  const Tensor& expected = inputs_[input];
  std::string name = expected.name.empty() ? "" : " '" + expected.name + "'";
  user_error("weft::call: input {}{} of program @{} must be {}{}, but got {}", input, name, program_name_,
             ir::to_string(expected.type), why, describe(tensors[input]));
}

void Signature::size_misfit(at::TensorList tensors, Place place) const {
  std::string why;
  for (int symbol : inputs_[place.input].shape[place.dim].symbols) {
    Place source = sources_[symbol];
    why += fmt::format("{} {} = {} (dim {} of input {}{})", why.empty() ? " with" : " and", symbols_[symbol],
                       text_of(tensors[source.input].sym_size(source.dim)), source.dim, source.input,
                       inputs_[source.input].name.empty() ? "" : " '" + inputs_[source.input].name + "'");
  }
  misfit(tensors, place.input, why);
}

void Signature::too_large(const Tensor& tensor) {
  user_error("weft::call: a size of '{}' overflows 64 bits; it is {}", tensor.name, ir::to_string(tensor.type));
}

void Signature::check_kinds(at::TensorList tensors) const {
  check(tensors.size() == inputs_.size(), "weft::call: program @{} takes {} inputs, but got {}", program_name_,
        inputs_.size(), tensors.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    int input = static_cast<int>(i);
    check(tensor.defined(), "weft::call: input {} of program @{} is undefined", i, program_name_);
    if (tensor.scalar_type() != inputs_[i].dtype) misfit(tensors, input, "");
    if (tensor.dim() != static_cast<int64_t>(inputs_[i].shape.size())) misfit(tensors, input, "");
    check(tensor.layout() == at::kStrided, "weft::call: input {} '{}' of program @{} must be a dense tensor", i,
          inputs_[i].name, program_name_);
  }
}

template <typename Int>
std::vector<Int> Signature::bind_sizes(at::TensorList tensors) const {
  check_kinds(tensors);
  std::vector<Int> values;
  values.reserve(sources_.size());
  for (Place source : sources_) values.push_back(sizes_of(tensors[source.input], Int())[source.dim]);
  for (Place place : checks_) {
    std::optional<Int> expected = evaluate(inputs_[place.input].shape[place.dim], values);
    if (!expected || !same(sizes_of(tensors[place.input], Int())[place.dim], *expected)) size_misfit(tensors, place);
  }
  return values;
}

template std::vector<int64_t> Signature::bind_sizes(at::TensorList) const;
template std::vector<c10::SymInt> Signature::bind_sizes(at::TensorList) const;

}  // namespace weft::torch_operator
