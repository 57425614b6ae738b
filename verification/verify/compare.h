#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "verify/recording.h"

namespace weft::verify {

/// Where the two first differ by more than rounding explains.
struct Place {
  int64_t layer = 0;
  int64_t direction = 0;  // 2: where the two directions are merged
  int64_t step = 0;       // index in time
  int64_t turn = 0;       // the how manieth step of the direction; `step` unless it runs backwards
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
  std::vector<double>
      defect;  // [T]: how far one step is off, where that is the most against its bound; NaN: not recorded
  std::vector<double> bound;  // [T]: what rounding can make of it there
  std::optional<Place> first;
};

struct Comparison {
  std::vector<Track> tracks;
  double worst = 0;  // the largest defect against its bound; over 1 is a difference

  bool agrees() const { return worst <= 1; }
};

/// How far what wasn't recorded may be off where it runs on by itself: every step's worst case, or, some times slower
/// and much closer, sampled (sampling.h).
enum class Bounds { kWorstCase, kSampled };

/// Takes each recorded step by itself: from the state that was recorded before it the layers compute the next, which
/// must be the recorded one but for rounding. So the bound is that of one step and holds however many there are, and
/// one fault is found where it is, not in all steps after. What wasn't recorded (an LSTM's c, lower layers) runs on
/// from the layers' own values, and its bounds with it.
///
/// Args:
///   patience: gives up at the first step where a defect is more than so many times its bound.
Comparison compare(const std::vector<Layer>& layers, const Recording& recording, Bounds bounds = Bounds::kSampled,
                   double patience = std::numeric_limits<double>::infinity());

/// The last layer's results [T, B, columns] when the layers run on x by themselves in `precision`, and what rounding
/// can make of them; that grows from step to step, and is infinite where a small change makes any large one.
Values outputs(const std::vector<Layer>& layers, const std::vector<double>& x, int64_t steps, int64_t batch,
               const Precision& precision);

/// By layer and direction: the largest difference of h at each step [T] between the recording and the layers run on x
/// alone; NaN where h isn't recorded.
std::vector<std::vector<std::vector<double>>> drift(const std::vector<Layer>& layers, const Recording& recording);

}  // namespace weft::verify
