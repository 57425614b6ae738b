#pragma once

#include <cstdint>
#include <vector>

#include "verify/recording.h"
#include "verify/sequence.h"
#include "verify/step.h"

namespace weft::verify {

/// Whether a unit's next state can be computed without all other units' gates: not where a product is normalised, where
/// h is projected, or where a GRU's reset gate stands before the product.
bool has_separate_units(const Layer& layer);

/// One direction of a layer with some of its units: the rows of their gates, which still read all of x and h.
Layer with_units(const Layer& layer, size_t direction, const std::vector<int64_t>& units);

/// The elements of an array or of a state that belong to the units.
std::vector<double> of_units(const std::vector<double>& all, const std::vector<int64_t>& units);

/// A few units of a row of the batch. Candidates are compared in these first, which rules out most.
struct Sample {
  std::vector<int64_t> units;  // empty: nothing is compared first
  int64_t row = 0;
};

/// True if these units differ from the recording by more than rounding explains. False if they agree, or if their steps
/// can't be computed by themselves: h isn't recorded, or `has_separate_units` doesn't hold. Of a GRU with its reset
/// gate before the product the gates r and z are compared, if they are recorded.
///
/// Args:
///   input: of the layer.
///   cache: null, or what counts the work.
bool differs_in(const Sample& sample, const Layer& layer, int64_t layer_index, size_t direction,
                const Recording& recording, const Sequence& input, ProductCache* cache);

}  // namespace weft::verify
