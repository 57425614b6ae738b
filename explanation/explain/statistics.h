// Statistics of repeated measurements: medians, because a shared machine's disturbances are one-sided.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::explain {

/// A median, and its confidence interval at the given level.
struct Interval {
  double median = 0;
  double low = 0;
  double high = 0;
};

/// The value at `fraction` (0 to 1) of the sorted values, interpolated. Throws Error if there is no value.
double quantile(std::span<const double> values, double fraction);

/// Bootstrap interval of the median (percentile method): of medians of samples drawn with replacement. The same values
/// give the same interval. Throws Error if there is no value or level is not between 0 and 1.
Interval median_interval(std::span<const double> values, double level = 0.95, int resamples = 2000);

/// The interval of the median of before[i] - after[i]; i is a round in which both ran, so what slows a round down slows
/// both. Throws Error if the lengths differ.
Interval paired_difference(std::span<const double> before, std::span<const double> after, double level = 0.95);

/// Spearman's rank correlation; ties have the mean of their ranks. NaN if either has a single value or all are equal.
double rank_correlation(std::span<const double> xs, std::span<const double> ys);

}  // namespace weft::explain
