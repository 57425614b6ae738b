#include "record/size_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace weft::record {

using ir::Dim;

namespace {

// Bounds of the search, far above what programs need.
constexpr int64_t kLargestMultiple = 2048;
constexpr int64_t kLargestOffset = 16384;
constexpr int64_t kLargestDivisor = 32;
constexpr size_t kMostKnown = 64;

}  // namespace

SizeFit::SizeFit(const std::vector<std::pair<int64_t, int64_t>>& samples, std::vector<int64_t> at_hand, bool guesses)
    : guesses_(guesses) {
  for (size_t i = 0; i < samples.size(); ++i) {
    symbols_.push_back(fmt::format("s{}", i));
    first_[symbols_[i]] = samples[i].first;
    second_[symbols_[i]] = samples[i].second;
    if (i < at_hand.size()) third_[symbols_[i]] = at_hand[i];
    known_.push_back({Dim::symbol(symbols_[i]), samples[i].first, samples[i].second});
  }
}

bool SizeFit::fits_third(const Dim& dim, std::optional<int64_t> third) const {
  return !third || !has_third() || ir::try_evaluate(dim, third_) == third;
}

std::optional<Dim> SizeFit::find(int64_t first, int64_t second, std::optional<int64_t> third) {
  if (first == second) return Dim(first);
  if (auto found = found_.find({first, second}); found != found_.end()) {
    if (found->second && !fits_third(*found->second, third)) found->second.reset();
    return found->second;
  }
  std::optional<Dim> dim = product(first, second);
  if (dim && !fits_third(*dim, third)) dim.reset();
  if (!dim && guesses_) {
    dim = guess(first, second, third);
    // A sum or a division may be a factor of other sizes.
    if (dim && known_.size() < kMostKnown) known_.push_back({*dim, first, second});
  }
  if (dim) found_.emplace(std::pair(first, second), dim);
  return dim;
}

/// A number times symbols, and times known sums.
std::optional<Dim> SizeFit::product(int64_t first, int64_t second) const {
  Dim dim(1);
  for (const Known& factor : known_) {
    if (factor.first == 0 || factor.second == 0 || factor.first == factor.second) continue;
    while (first != second && first != 0 && first % factor.first == 0 && second % factor.second == 0) {
      first /= factor.first, second /= factor.second;
      dim = dim * factor.dim;
    }
  }
  if (first != second) return std::nullopt;
  return dim * Dim(first);
}

std::optional<Dim> SizeFit::guess(int64_t first, int64_t second, std::optional<int64_t> third) const {
  if (first < 0 || second < 0) return std::nullopt;
  std::vector<Guess> found;
  for (const Known& of : known_) {
    try_multiple(of, first, second, found);
    try_quotients(of, first, second, found);
  }
  try_sums(first, second, found);
  std::ranges::stable_sort(found, {}, &Guess::cost);
  for (const Guess& each : found)
    if (fits_third(each.dim, third)) return each.dim;
  return std::nullopt;
}

/// A multiple of a known size plus a number.
void SizeFit::try_multiple(const Known& of, int64_t first, int64_t second, std::vector<Guess>& found) const {
  const int64_t step = of.second - of.first;
  if (step == 0 || (second - first) % step != 0) return;
  const int64_t times = (second - first) / step, offset = first - times * of.first;
  if (times == 0 || std::abs(times) > kLargestMultiple || std::abs(offset) > kLargestOffset) return;
  found.push_back({Dim(times) * of.dim + Dim(offset), 8 * std::abs(times) + std::abs(offset)});
}

/// A known size plus a number, divided and rounded down.
void SizeFit::try_quotients(const Known& of, int64_t first, int64_t second, std::vector<Guess>& found) const {
  for (int64_t divisor = 2; divisor <= kLargestDivisor; ++divisor) {
    const int64_t low = std::max(divisor * first - of.first, divisor * second - of.second);
    const int64_t high = std::min(divisor * first - of.first, divisor * second - of.second) + divisor - 1;
    for (int64_t offset = low; offset <= high && offset - low < divisor; ++offset) {
      if (std::abs(offset) > kLargestOffset) continue;
      found.push_back({floor_divide(of.dim + Dim(offset), divisor), 8 * divisor + std::abs(offset)});
    }
  }
}

/// The sum or the difference of two symbols, plus a number.
void SizeFit::try_sums(int64_t first, int64_t second, std::vector<Guess>& found) const {
  constexpr int64_t kLargest = 8;
  for (size_t i = 0; i < symbols_.size(); ++i)
    for (size_t j = 0; j < symbols_.size(); ++j)
      for (const int64_t sign : {int64_t{1}, int64_t{-1}}) {
        if (i == j || (sign == 1 && j < i)) continue;
        const Known &a = known_[i], &b = known_[j];
        const int64_t offset = first - a.first - sign * b.first;
        if (offset != second - a.second - sign * b.second || std::abs(offset) > kLargest) continue;
        found.push_back({a.dim + Dim(sign) * b.dim + Dim(offset), 32 + std::abs(offset)});
      }
}

}  // namespace weft::record
