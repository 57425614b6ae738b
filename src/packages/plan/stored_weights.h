#pragma once

#include <map>

#include "packages/plan/tasks.h"

namespace weft::packages {

/// The weights of a step's products (is_product) in the type in which an object stores them. What a step computes of
/// them is as if they had been rounded before:
/// - f32: as they are, and nothing is kept here.
/// - bf16, f16: each to the nearest, ties to even.
/// - i8: integers of -127..127 with a scale in f32 for each column: its largest element becomes 127 or -127, as
///   weft.quantize rounds the rows of PyTorch's weights.
/// Products of f64 have no narrow form.
///
/// A product that multiplies bytes (tasks.h) rounds the rows of its left operand at each step. A row has a scale in
/// f32: the largest of its magnitudes m divided by 127. Its elements become x * (127 / m), rounded in f32, to the
/// nearest integer, ties to even. These are multiplied by the integers of the weights and added up exactly, and the
/// sum, as f32, is multiplied by the row's scale, then by the column's. m is at least 2^-100. A row with an element
/// that isn't finite has the scale NaN.
class StoredWeights {
 public:
  /// User's error if a narrow type is asked for and the step has a product in f64, or none in f32, or a weight that
  /// isn't finite or that the type can't hold.
  StoredWeights(const Bound& step, DType dtype);

  DType dtype() const { return dtype_; }
  /// The number stored for row k and column n of a product's weights [K, N]: as it is in f32 or f64, an integer for i8.
  double element(const ir::Op& product, int64_t row, int64_t column) const;
  /// The factor of an i8 weight; 1 for the other types.
  float scale(const ir::Op& product, int64_t column) const;
  /// All elements of a product's weights, in the stored type and the operand's shape.
  interpreter::Array elements(const ir::Op& product) const;
  /// The scales [N] of a product's columns.
  interpreter::Array scales(const ir::Op& product) const;

  /// Of all products: the number of weights, and the bytes of weights and scales, without the padding of vectors.
  int64_t count() const { return count_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Narrow {
    int64_t rows = 0, columns = 0;
    std::vector<double> elements;  ///< [K, N]
    std::vector<float> scales;     ///< [N] for i8
  };
  double given(const ir::Op& product, int64_t row, int64_t column) const;
  Narrow round(const ir::Op& product) const;
  static void round_to_bytes(Narrow& narrow);
  std::string_view argument() const;

  const Bound& step_;
  DType dtype_;
  std::map<ir::ValueId, Narrow> narrow_;  ///< by the product
  int64_t count_ = 0, bytes_ = 0;
};

}  // namespace weft::packages
