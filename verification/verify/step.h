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

  /// Counts a step, given the number of gates times units.
  void count_step(int64_t units) { work += kStep + kOfUnit * static_cast<double>(units); }

  /// Rows [first, first + count) of `matrix` times `x`.
  std::shared_ptr<const Sums> product(const Matrix& matrix, int64_t first, int64_t count, const Values& x);

 private:
  // The cost of a step besides its products, in multiply-adds; measured.
  static constexpr double kStep = 3e3, kOfUnit = 100;

  struct Entry {
    Shared<std::vector<double>> matrix;
    int64_t first, count;
    Values x;
    std::shared_ptr<const Sums> sums;
  };
  std::vector<Entry> entries_;
  size_t next_ = 0;
};

/// The state that one step of one row of the batch reads, in parts, so that a part can be replaced by an older state's.
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
