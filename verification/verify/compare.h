#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "verify/recording.h"
#include "verify/step.h"
#include "verify/units.h"

namespace weft::verify {

/// The first place at which the two differ by more than rounding explains.
struct Place {
  int64_t layer = 0;
  int64_t direction = 0;  // 2: where the two directions are merged
  int64_t step = 0;       // index in time
  int64_t turn = 0;       // the step's number in the order of the direction; equal to `step` unless it runs backwards
  std::string quantity;   // r, z, n, i, f, g, o, c, h, hn, cn; y where directions are merged
  int64_t row = 0;
  int64_t unit = 0;
  double layers = 0;  // the value that the layers give
  double recorded = 0;
  double bound = 0;
};

/// One direction of one layer, by step in the order of time.
struct Track {
  int64_t layer = 0;
  int64_t direction = 0;
  std::vector<double> defect;  // [T]: the error of the element with the largest ratio to its bound; NaN: not recorded
  std::vector<double> bound;   // [T]: the bound of rounding for that element
  std::optional<Place> first;
};

struct Comparison {
  std::vector<Track> tracks;
  double largest = 0;   // the largest defect, whatever the bounds
  double worst = 0;     // the largest defect against its bound; over 1 is a difference
  double evidence = 0;  // bits: the sum, over numbers that differ, of log2 of the defect against the bound

  bool agrees() const { return worst <= 1; }
};

/// How the error of unrecorded values is bounded, which run on from the layers' own values: by the worst case of every
/// step, or by samples (sampling.h), which are some times slower and much closer. kNone: there are no bounds, of all
/// results only `Comparison::largest` is computed, in a third of the time.
enum class Bounds { kNone, kWorstCase, kSampled };

/// The results of the lowest layers in earlier comparisons with one recording. They serve later comparisons in which
/// only higher layers have changed.
class LayerCache {
 public:
  /// A result of the `count` lowest layers.
  struct Run {
    size_t count;
    Bounds bounds;
    int64_t row;
    Sequence output;
    Comparison found;
  };

  explicit LayerCache(const std::vector<Layer>& layers) : layers_(&layers) {}
  /// The run of as many layers as possible, but not all; null where there is none.
  const Run* find(const std::vector<Layer>& layers, Bounds bounds, int64_t row) const;
  /// Keeps the run if its layers are those of the cache.
  void keep(const std::vector<Layer>& layers, Run run);

 private:
  size_t common(const std::vector<Layer>& layers, size_t most) const;

  const std::vector<Layer>* layers_;
  std::vector<Run> runs_;
};

/// Options that end a comparison early, if only agreement matters.
struct Haste {
  double patience = std::numeric_limits<double>::infinity();  ///< ends at a defect of more than so many times its bound
  double most = std::numeric_limits<double>::infinity();      ///< ends at a defect of more than this
  int64_t row = -1;                                           ///< of the batch, the only one that is compared; -1: all
  ProductCache* cache = nullptr;  ///< products of earlier comparisons, of nearly the same layers
  LayerCache* below = nullptr;    ///< results of layers in earlier comparisons with the same recording
  Sample sample{};                ///< of `row`: what is compared first

  int64_t first_row() const { return std::max<int64_t>(row, 0); }
  int64_t end_row(int64_t batch) const { return row < 0 ? batch : row + 1; }
};

/// Compares step by step: from the recorded state before a step the layers compute the next state, which must equal the
/// recorded one within rounding. So the bound is that of a single step, however many there are, and a fault shows in
/// its own step and not in all later ones. Values that weren't recorded (an LSTM's c, lower layers) are computed on
/// from the layers' own values, and so are their bounds. With a `haste.row` the bounds are the worst case's.
Comparison compare(const std::vector<Layer>& layers, const Recording& recording, Bounds bounds = Bounds::kSampled,
                   const Haste& haste = {});

/// The last layer's results [T, B, columns] when the layers run on x by themselves in `precision`, and what rounding
/// can make of them; that grows from step to step, and is infinite where a small change makes any large one.
Values outputs(const std::vector<Layer>& layers, const std::vector<double>& x, int64_t steps, int64_t batch,
               const Precision& precision);

/// The distance of h in one direction between the recording and the layers run on x alone.
struct Drift {
  std::vector<double> steps;               // [T]: the largest over rows and units; NaN: not recorded
  int64_t step = -1, row = -1, unit = -1;  // where it is the largest; -1: there is no difference
};

/// The drift of each layer and direction.
std::vector<std::vector<Drift>> drift(const std::vector<Layer>& layers, const Recording& recording);

}  // namespace weft::verify
