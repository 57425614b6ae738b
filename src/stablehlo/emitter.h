#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace weft::stablehlo {

using Sizes = std::vector<int64_t>;

/// A tensor's type in StableHLO: all sizes are numbers. Printed `tensor<3x4xf32>`.
struct TensorType {
  DType dtype = DType::kF32;
  Sizes sizes;

  bool operator==(const TensorType&) const = default;
  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
};
std::string to_string(const TensorType& type);

/// The type in which elements of a dtype are computed and summed: f32 for f16 and bf16, else the dtype itself.
DType compute_type(DType dtype);

/// A value of the text.
struct Tensor {
  std::string name;  ///< with its `%`
  TensorType type;
};

/// `%a, %b`, and `tensor<..>, tensor<..>`.
/// "[2, 3]".
std::string list_of(const Sizes& numbers);
std::string names_of(std::span<const Tensor> tensors);
std::string types_of(std::span<const Tensor> tensors);

/// The dims of a product: pairs that are one batch dim of a and b, and pairs that are summed over.
struct ProductDims {
  Sizes batch_a, batch_b, summed_a, summed_b;
};

/// Writes StableHLO line by line. Each function, except those for text, appends one op and returns its result. The
/// caller keeps the op's type rules. https://openxla.org/stablehlo/spec describes the ops.
class Emitter {
 public:
  // Text.
  std::string take() { return std::move(text_); }
  void line(std::string_view text);
  /// Indents the following lines by one level more, or one level less.
  void indent() { ++depth_; }
  void dedent() { --depth_; }
  /// `%n`, never given before.
  std::string new_name();

  // Elementwise. Operands are of one type, but for the condition of select.
  Tensor unary(std::string_view op, const Tensor& a);
  Tensor binary(std::string_view op, const Tensor& a, const Tensor& b);
  /// A unary op of CHLO, the dialect that StableHLO's own tools expand.
  Tensor chlo(std::string_view op, const Tensor& a);
  /// `direction`: EQ, NE, LT, LE, GT or GE.
  Tensor compare(std::string_view direction, const Tensor& a, const Tensor& b);
  Tensor select(const Tensor& condition, const Tensor& a, const Tensor& b);
  /// The tensor cast to a dtype; the tensor itself if it has that dtype.
  Tensor convert(const Tensor& a, DType dtype);

  // Sources. Every element of a constant is the value, rounded to f32 first where the type has 16 bits.
  Tensor constant(double value, const TensorType& type);
  Tensor like(double value, const Tensor& a) { return constant(value, a.type); }
  /// The least value of a dtype: -inf or the least integer.
  Tensor least(const TensorType& type);
  /// inf or the greatest integer.
  Tensor greatest(const TensorType& type);
  Tensor iota(const TensorType& type, int64_t dim);

  // Movement.
  Tensor broadcast(const Tensor& a, Sizes sizes, const Sizes& dims);
  Tensor reshape(const Tensor& a, Sizes sizes);
  Tensor transpose(const Tensor& a, const Sizes& perm);
  Tensor slice(const Tensor& a, int64_t dim, int64_t start, int64_t limit);
  /// Zeros before and after along a dim.
  Tensor pad(const Tensor& a, int64_t dim, int64_t low, int64_t high);
  Tensor concatenate(std::span<const Tensor> parts, int64_t dim);
  Tensor reverse(const Tensor& a, int64_t dim);
  /// `size` rows along a dim from `start`, a scalar, on.
  Tensor dynamic_slice(const Tensor& a, const Tensor& start, int64_t dim, int64_t size);
  Tensor dynamic_update(const Tensor& a, const Tensor& update, const Tensor& start, int64_t dim);
  /// Rows of a table [V, rest...] by an index [idx...]: [idx..., rest...].
  Tensor gather(const Tensor& table, const Tensor& index);
  /// The table [V, rest...] with updates [idx..., rest...] joined to its rows by `op`; an index outside is skipped.
  Tensor scatter(std::string_view op, const Tensor& table, const Tensor& index, const Tensor& updates);

  /// The elements sorted along a dim, stably and with NaN as the greatest; and for each element its index before
  /// sorting, int64.
  std::pair<Tensor, Tensor> sort(const Tensor& a, int64_t dim, bool is_descending);

  // Sums.
  Tensor reduce(std::string_view op, const Tensor& a, const Tensor& init, const Sizes& dims);
  Tensor dot(const Tensor& a, const Tensor& b, const ProductDims& dims, DType result);

 private:
  /// Appends `%n = text : signature` and returns %n.
  Tensor append(std::string_view text, std::string_view signature, TensorType type);
  /// The start indices of a part: `start` along `dim`, 0 along the others.
  std::vector<Tensor> starts_of(const Tensor& start, int64_t dim, int64_t rank);

  std::string text_;
  int depth_ = 0;
  int64_t next_ = 0;
};

}  // namespace weft::stablehlo
