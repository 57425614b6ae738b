#pragma once

#include <array>
#include <vector>

#include "verify/bounded.h"

namespace weft::verify {

/// Products of a matrix and a vector that were computed before, for steps in which only other things were changed
/// since.
class ProductCache {
 public:
  double work = 0;  // multiply-adds that were done

  /// Rows [first, first + count) of `matrix` times `x`.
  Sums product(const Matrix& matrix, int64_t first, int64_t count, const Values& x);

 private:
  struct Entry {
    Shared<std::vector<double>> matrix;
    int64_t first, count;
    Values x;
    Sums sums;
  };
  std::vector<Entry> entries_;
  size_t next_ = 0;
};

/// The state that one step of one row of the batch reads, each part by itself, so that a stale one can be put in.
struct StepInput {
  const Values& x;         // [I]
  const Values& products;  // [P]: the h that W_h is multiplied with
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
