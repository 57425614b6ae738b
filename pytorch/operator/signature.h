#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/program.h"
#include "operator/aten.h"

namespace weft::torch_operator {

/// PyTorch's element type for Weft's and back; empty when Weft has none.
at::ScalarType scalar_type(DType dtype);
std::optional<DType> dtype_of(at::ScalarType type);

/// A program's input and output types, prepared for calls. Symbols are numbered, and the input dim that binds each is
/// known, so that checking the inputs of a call walks flat lists. All functions work on plain sizes and on SymInts.
class Signature {
 public:
  /// As ir::Dim, symbols as indices.
  struct Size {
    int64_t factor;
    std::vector<int> symbols;
  };
  struct Tensor {
    at::ScalarType dtype;
    std::vector<Size> shape;
    ir::Type type;
    std::string name;
  };

  explicit Signature(const ir::Program& program);

  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }

  /// The symbols' values. User's error naming the input, its type and what was given if a tensor doesn't fit.
  std::vector<int64_t> bind(at::TensorList tensors) const { return bind_sizes<int64_t>(tensors); }
  std::vector<c10::SymInt> bind_symbolic(at::TensorList tensors) const { return bind_sizes<c10::SymInt>(tensors); }

  /// The sizes of a tensor of these symbols' values. User's error where one overflows 64 bits.
  template <typename Int>
  static c10::SmallVector<Int, 6> sizes(const Tensor& tensor, const std::vector<Int>& values) {
    c10::SmallVector<Int, 6> result;
    for (const Size& size : tensor.shape) {
      std::optional<Int> value = evaluate(size, values);
      if (!value) too_large(tensor);
      result.push_back(*std::move(value));
    }
    return result;
  }

 private:
  /// A dim of an input; `from` of a symbol is its first occurrence.
  struct Place {
    int input, dim;
  };

  /// The size, or none if it overflows: wrapped bits might equal a tensor's size by chance. 0 times anything is 0.
  template <typename Int>
  static std::optional<Int> evaluate(const Size& size, const std::vector<Int>& values) {
    Int result = size.factor;
    bool fits = true;
    for (int symbol : size.symbols) {
      if (is_zero(values[symbol])) return Int(0);
      fits = fits && multiply(result, values[symbol]);
    }
    if (!fits) return std::nullopt;
    return result;
  }
  static bool is_zero(int64_t size) { return size == 0; }
  static bool is_zero(const c10::SymInt& size) { return size.maybe_as_int() == 0; }
  /// False if the product overflows. PyTorch multiplies symbolic sizes.
  static bool multiply(int64_t& product, int64_t size) { return !__builtin_mul_overflow(product, size, &product); }
  static bool multiply(c10::SymInt& product, const c10::SymInt& size) {
    auto left = product.maybe_as_int(), right = size.maybe_as_int();
    if (left && right && !multiply(*left, *right)) return false;
    product = left && right ? c10::SymInt(*left) : product * size;
    return true;
  }
  [[noreturn]] static void too_large(const Tensor& tensor);
  Tensor make_tensor(const ir::Program& program, ir::ValueId id) const;
  void check_kinds(at::TensorList tensors) const;
  template <typename Int>
  std::vector<Int> bind_sizes(at::TensorList tensors) const;
  [[noreturn]] void misfit(at::TensorList tensors, int input, const std::string& why) const;
  [[noreturn]] void size_misfit(at::TensorList tensors, Place place) const;

  std::string program_name_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<std::string> symbols_;
  std::vector<Place> sources_;  ///< by symbol
  std::vector<Place> checks_;   ///< all other dims
};

}  // namespace weft::torch_operator
