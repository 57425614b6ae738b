// Steps of a compiled program as graphs and the gaps between them.
#pragma once

#include <vector>

#include "explain/statistics.h"

namespace weft::explain {

/// A run of a compiled graph or of its backward: which graph, and when in seconds.
struct Span {
  int graph = 0;
  double begin = 0;
  double end = 0;
  bool backward = false;
};

/// One step, with the graphs that ran in it, ordered by their start. Graphs inside another (a compiled function called
/// by a graph's own code) count as part of it.
struct Step {
  double begin = 0;
  double end = 0;
  std::vector<Span> spans;
};

/// The time from the end of a graph to the start of the next one, or to the end of the step. `graph` is -1 before the
/// first graph. Between two backwards `graph` is the one whose backward comes next: the break between the two ended
/// that graph. After the last backward it is -1.
struct Gap {
  int graph = -1;
  bool backward = false;  ///< after a backward
  double hits = 0;        ///< per step, the mean
  Interval seconds;       ///< per step: the sum over its hits
};

/// The gaps of all steps by graph, in the order in which these first ran. The sum of gaps and of
/// graphs is the step. Throws Error if there is no step, or a span is not inside its step.
std::vector<Gap> gaps(const std::vector<Step>& steps);

}  // namespace weft::explain
