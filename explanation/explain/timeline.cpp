#include "explain/timeline.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace weft::explain {
namespace {

struct Followed {
  size_t order = 0;
  double hits = 0;
  std::vector<double> seconds;  // by step
};

using Key = std::pair<int, bool>;  // graph, backward

/// Attributes the seconds of one step to a gap.
void add(std::map<Key, Followed>& found, Key key, size_t step, size_t steps, double seconds) {
  const auto [entry, fresh] = found.try_emplace(key);
  Followed& followed = entry->second;
  if (fresh) {
    followed.order = found.size();
    followed.seconds.resize(steps);
  }
  followed.hits += 1;
  followed.seconds[step] += seconds;
}

}  // namespace

std::vector<Gap> gaps(const std::vector<Step>& steps) {
  check(!steps.empty(), "a time line needs at least one step");
  std::map<Key, Followed> found;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    double reached = step.begin;
    Key last{-1, false};
    for (const Span& span : step.spans) {
      check(span.begin >= step.begin && span.end <= step.end && span.begin <= span.end,
            "graph {} ran from {} to {}, outside its step from {} to {}", span.graph, span.begin, span.end, step.begin,
            step.end);
      if (span.begin < reached) continue;  // inside the one before
      if (last.second && span.backward) last.first = span.graph;
      add(found, last, i, steps.size(), span.begin - reached);
      reached = span.end;
      last = {span.backward ? -1 : span.graph, span.backward};
    }
    add(found, last, i, steps.size(), step.end - reached);
  }
  std::vector<std::pair<size_t, Gap>> ordered;
  for (const auto& [key, followed] : found) {
    ordered.push_back({followed.order,
                       {key.first, key.second, followed.hits / static_cast<double>(steps.size()),
                        median_interval(followed.seconds)}});
  }
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Gap> result;
  for (const auto& [order, gap] : ordered) result.push_back(gap);
  return result;
}

}  // namespace weft::explain
