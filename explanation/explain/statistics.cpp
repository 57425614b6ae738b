#include "explain/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace weft::explain {
namespace {

double quantile_of_sorted(std::span<const double> sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

/// splitmix64: the same numbers with every standard library.
class Random {
 public:
  size_t below(size_t bound) {
    state_ += 0x9E3779B97F4A7C15ULL;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
    return static_cast<size_t>((mixed ^ (mixed >> 31)) % bound);
  }

 private:
  uint64_t state_ = 1;
};

std::vector<double> ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> rank(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) rank[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return rank;
}

}  // namespace

double quantile(std::span<const double> values, double fraction) {
  check(!values.empty(), "a quantile needs at least one value");
  check(fraction >= 0 && fraction <= 1, "a quantile's fraction is between 0 and 1, got {}", fraction);
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return quantile_of_sorted(sorted, fraction);
}

Interval median_interval(std::span<const double> values, double level, int resamples) {
  check(level > 0 && level < 1, "an interval's level is between 0 and 1, got {}", level);
  Interval interval;
  interval.median = quantile(values, 0.5);
  Random random;
  std::vector<double> medians(static_cast<size_t>(std::max(resamples, 1)));
  std::vector<double> sample(values.size());
  for (double& median : medians) {
    for (double& value : sample) value = values[random.below(values.size())];
    const auto middle = sample.begin() + static_cast<std::ptrdiff_t>(sample.size() / 2);
    std::nth_element(sample.begin(), middle, sample.end());
    median = *middle;
    if (sample.size() % 2 == 0) median = (median + *std::max_element(sample.begin(), middle)) / 2;
  }
  std::sort(medians.begin(), medians.end());
  interval.low = quantile_of_sorted(medians, (1 - level) / 2);
  interval.high = quantile_of_sorted(medians, (1 + level) / 2);
  return interval;
}

Interval paired_difference(std::span<const double> before, std::span<const double> after, double level) {
  check(before.size() == after.size(), "pairs need as many measurements before as after, got {} and {}", before.size(),
        after.size());
  std::vector<double> differences(before.size());
  std::transform(before.begin(), before.end(), after.begin(), differences.begin(), std::minus<>());
  return median_interval(differences, level);
}

double rank_correlation(std::span<const double> xs, std::span<const double> ys) {
  check(xs.size() == ys.size(), "a correlation needs as many xs as ys, got {} and {}", xs.size(), ys.size());
  const std::vector<double> rank_x = ranks(xs);
  const std::vector<double> rank_y = ranks(ys);
  const double mean = static_cast<double>(xs.size() - 1) / 2;
  double product = 0;
  double square_x = 0;
  double square_y = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    product += (rank_x[i] - mean) * (rank_y[i] - mean);
    square_x += (rank_x[i] - mean) * (rank_x[i] - mean);
    square_y += (rank_y[i] - mean) * (rank_y[i] - mean);
  }
  const double squares = std::sqrt(square_x * square_y);
  return squares > 0 ? product / squares : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace weft::explain
