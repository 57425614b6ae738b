#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ir/binder.h"
#include "operator/aten.h"

namespace weft::torch_operator {

/// PyTorch's element type for Weft's and back; empty when Weft has none.
at::ScalarType scalar_type(DType dtype);
std::optional<DType> dtype_of(at::ScalarType type);

/// Arithmetic on PyTorch's sizes, plain or symbolic (ir::PlainSizes).
struct SymbolicSizes {
  using Int = c10::SymInt;
  static bool is_zero(const c10::SymInt& size) { return size.maybe_as_int() == 0; }
  /// A symbolic size becomes a guard or a check, as in same().
  static bool is_negative(const c10::SymInt& size) { return !size.sym_ge(0).expect_true(__FILE__, __LINE__); }
  /// These return false where the result of plain sizes overflows. With symbolic sizes overflow is PyTorch's matter.
  static bool multiply(c10::SymInt& product, const c10::SymInt& size);
  static bool add(c10::SymInt& sum, const c10::SymInt& term);
  static c10::SymInt divide(const c10::SymInt& size, int64_t divisor) { return size / divisor; }
  /// A symbolic size becomes a guard or, when unbacked, a check at run time.
  static bool same(const c10::SymInt& a, const c10::SymInt& b) { return a.sym_eq(b).expect_true(__FILE__, __LINE__); }
};

/// A program's input and output types with PyTorch's element types: an ir::Binder for tensors.
class Signature {
 public:
  struct Tensor : ir::Binder::Tensor {
    at::ScalarType dtype;
  };

  explicit Signature(const ir::Program& program);

  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }

  /// The values of the symbols and of what else sizes() needs, as engine::Executable::run takes them. User's error
  /// naming the input, its type and what was given if a tensor doesn't fit.
  std::vector<int64_t> bind(at::TensorList tensors) const { return bind_sizes<ir::PlainSizes>(tensors); }
  std::vector<c10::SymInt> bind_symbolic(at::TensorList tensors) const { return bind_sizes<SymbolicSizes>(tensors); }

  /// The sizes of a tensor for these values. User's error where a size overflows 64 bits.
  template <typename Int>
  static c10::SmallVector<Int, 6> sizes(const Tensor& tensor, const std::vector<Int>& values) {
    using Arithmetic = std::conditional_t<std::is_same_v<Int, int64_t>, ir::PlainSizes, SymbolicSizes>;
    c10::SmallVector<Int, 6> result;
    for (const ir::Binder::Size& size : tensor.shape) {
      std::optional<Int> value = ir::Binder::evaluate<Arithmetic>(size, values);
      if (!value) too_large(tensor);
      result.push_back(*std::move(value));
    }
    return result;
  }

 private:
  [[noreturn]] static void too_large(const Tensor& tensor);
  void check_kinds(at::TensorList tensors) const;
  template <typename Arithmetic>
  std::vector<typename Arithmetic::Int> bind_sizes(at::TensorList tensors) const;
  [[noreturn]] void misfit(at::TensorList tensors, size_t input) const;

  ir::Binder binder_;
  std::vector<Tensor> inputs_, outputs_;
};

}  // namespace weft::torch_operator
