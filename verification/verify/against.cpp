#include "verify/against.h"

#include <cmath>
#include <limits>

namespace weft::verify {

double against(double computed, double recorded, double bound) {
  if (std::isnan(computed) && std::isnan(recorded)) return 0;
  if (computed == recorded) return 0;
  const double difference = std::abs(computed - recorded);
  if (!std::isfinite(computed)) return std::numeric_limits<double>::infinity();
  if (std::isinf(bound)) return 0.5;  // an overflow that the bound foresaw, whatever its result
  return std::isfinite(recorded) && bound > 0 ? difference / bound : std::numeric_limits<double>::infinity();
}

double bound_of(double error, const Precision& precision) {
  return (1 + Precision::of(DType::kF64).unit / precision.unit) * error;
}

void forgive_storing(Values& state, const Precision& precision) {
  if (!state.bounded || precision.unit == precision.sum_unit) return;
  for (int64_t index = 0; index < state.size(); ++index)
    state.error[index] += precision.unit * std::abs(state.value[index]) + precision.floor;
}

}  // namespace weft::verify
