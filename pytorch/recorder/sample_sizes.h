#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace weft::recorder {

/// By symbol: its values in two runs.
using SampleSizes = std::vector<std::pair<int64_t, int64_t>>;

/// Samples from which sizes are told as expressions of symbols (size_fit.h), the best first, for symbols that have had
/// these two values each. The first of each pair is an odd prime, the second even, so that n // 2 shows; no two pairs
/// are equally far apart, so that n + 1 is of one symbol only.
///
/// What a function does at sizes between two that it has been called with it is likely to do at others, too; outside
/// of them it may leave what it indexes, or clip. Empty where there are more symbols than samples.
std::vector<SampleSizes> sample_choices(const SampleSizes& seen);

}  // namespace weft::recorder
