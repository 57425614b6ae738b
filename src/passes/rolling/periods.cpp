#include "passes/rolling/periods.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace weft::passes {
namespace {

constexpr size_t kBase = 0x9e3779b97f4a7c15ull;  // odd, so that its powers don't vanish
/// How often a token may occur in one period for the period to be found from it.
constexpr int kLooksAhead = 12;

}  // namespace

Periods::Periods(std::vector<size_t> tokens) : tokens_(std::move(tokens)) {
  size_t n = tokens_.size();
  prefix_.assign(n + 1, 0);
  power_.assign(n + 1, 1);
  next_.assign(n, n);
  for (size_t i = 0; i < n; ++i) {
    prefix_[i + 1] = prefix_[i] * kBase + tokens_[i];
    power_[i + 1] = power_[i] * kBase;
  }
  std::unordered_map<size_t, size_t> last;
  for (size_t i = n; i-- > 0;) {
    auto [it, is_new] = last.try_emplace(tokens_[i], i);
    if (!is_new) next_[i] = std::exchange(it->second, i);
  }
}

size_t Periods::hash(size_t from, size_t length) const {
  return prefix_[from + length] - prefix_[from] * power_[length];
}

size_t Periods::common(size_t a, size_t b) const {
  size_t low = 0;
  size_t high = tokens_.size() - b;  // a < b
  while (low < high) {
    size_t middle = low + (high - low + 1) / 2;
    if (hash(a, middle) == hash(b, middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

std::vector<Repetition> Periods::at(size_t place) const {
  std::vector<Repetition> found;
  size_t again = next_[place];
  for (int i = 0; i < kLooksAhead && again < tokens_.size(); ++i, again = next_[again]) {
    size_t period = again - place;
    if (period > tokens_.size() - again) break;
    size_t length = common(place, again);
    if (length >= period) found.push_back({place, period, again + length});
  }
  std::ranges::stable_sort(found, [](const Repetition& a, const Repetition& b) { return a.end > b.end; });
  return found;
}

}  // namespace weft::passes
