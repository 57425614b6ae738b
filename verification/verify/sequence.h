#pragma once

#include <algorithm>
#include <vector>

#include "verify/bounded.h"

namespace weft::verify {

/// Numbers [T, B, columns], each with a bound of its error.
struct Sequence {
  int64_t columns = 0;
  Values numbers;

  /// Row `index` = step * B + row of the batch.
  Values row(int64_t index) const {
    const auto first = index * columns, last = first + columns;
    Values result(0, numbers.bounded);
    result.value.assign(numbers.value.begin() + first, numbers.value.begin() + last);
    if (numbers.bounded) result.error.assign(numbers.error.begin() + first, numbers.error.begin() + last);
    return result;
  }
  void set_row(int64_t index, const Values& row) {
    std::copy(row.value.begin(), row.value.end(), numbers.value.begin() + index * columns);
    if (numbers.bounded) std::copy(row.error.begin(), row.error.end(), numbers.error.begin() + index * columns);
  }
};

/// Numbers without an error.
inline Values exact(std::vector<double> numbers) {
  Values values;
  values.error.assign(numbers.size(), 0);
  values.value = std::move(numbers);
  return values;
}

}  // namespace weft::verify
