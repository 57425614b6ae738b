#pragma once

#include <array>
#include <memory>
#include <vector>

#include "verify/bounded.h"

namespace weft::verify {

/// Matrix-vector products that were computed earlier, for steps in which only other things have changed since; also
/// counts the cost of steps.
class ProductCache {
 public:
  double work = 0;  // in multiply-adds

  /// Counts a step of so many gates' units.
  void count_step(int64_t units, bool bounded) {
    work += (bounded ? 1 : kUnbounded) * (kStep + kOfUnit * static_cast<double>(units));
  }

  /// Counts a step of a few units, with its products.
  void count_units(const Direction& direction) {
    const auto rows = static_cast<double>(direction.weight_h.rows);
    work += kStep + rows * (kOfUnit + static_cast<double>(direction.weight_x.columns + direction.weight_h.columns));
  }
  /// Counts the moves of a layer's weights.
  void count_moves(const Layer& layer) {
    for (const Direction& direction : layer.directions)
      work += kOfMove * static_cast<double>(direction.weight_x.values->size() + direction.weight_h.values->size());
  }

  /// Rows [first, first + count) of `matrix` times `x`.
  std::shared_ptr<const Sums> product(const Matrix& matrix, int64_t first, int64_t count, const Values& x);

 private:
  // The cost of a step besides its products, in multiply-adds; measured.
  static constexpr double kStep = 3e3, kOfUnit = 100, kOfMove = 8;
  // The part of it that is left without bounds.
  static constexpr double kUnbounded = 0.25;

  struct Entry {
    Shared<std::vector<double>> matrix;
    int64_t first, count;
    Values x;
    std::shared_ptr<const Sums> sums;
  };
  std::vector<Entry> entries_;
  size_t next_ = 0;
};

/// The state that a step reads, for one row of the batch. It comes in parts, since a change may take one of them from
/// an older state.
struct StepInput {
  const Values& x;         // [I]
  const Values& products;  // [P]: the h multiplied by W_h
  const Values& blend;     // [H]: a GRU's h in z h
  const Values& cell;      // [H]: an LSTM's c
  ProductCache* cache = nullptr;
};

/// The results of a step: the gates after their activations, and the next state.
struct StepResult {
  std::array<Values, 4> gates;
  Values c;
  Values h;
};

StepResult step(const Cell& cell, const Direction& direction, const Precision& precision, const StepInput& input);

}  // namespace weft::verify
