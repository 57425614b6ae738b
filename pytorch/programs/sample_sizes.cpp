#include "programs/sample_sizes.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace weft::programs {

namespace {

constexpr std::pair<int64_t, int64_t> kLarge[] = {{67, 134}, {71, 146}, {73, 158},  {79, 166},
                                                  {83, 178}, {89, 194}, {101, 214}, {103, 226}};

constexpr std::pair<int64_t, int64_t> kSmall[] = {{3, 74},   {5, 82},   {7, 86},   {11, 94},
                                                  {13, 106}, {17, 118}, {19, 122}, {23, 134}};
constexpr std::pair<int64_t, int64_t> kPrimes[] = {{3, 37},  {5, 41},  {7, 43},  {11, 47},
                                                   {13, 53}, {17, 59}, {19, 61}, {23, 67}};
static_assert(std::size(kLarge) == kMostSymbols && std::size(kSmall) == kMostSymbols &&
              std::size(kPrimes) == kMostSymbols);

bool is_odd_prime(int64_t number) {
  if (number < 3 || number % 2 == 0) return false;
  for (int64_t divisor = 3; divisor * divisor <= number; divisor += 2)
    if (number % divisor == 0) return false;
  return true;
}

/// Whether a pair can be distinguished from the pairs of other symbols.
bool is_apart(const std::pair<int64_t, int64_t>& pair, const SampleSizes& others) {
  return std::ranges::none_of(others, [&](const auto& other) {
    return pair.first == other.first || pair.second == other.second ||
           pair.second - pair.first == other.second - other.first;
  });
}

/// A pair within low < n < high, far apart, that can be distinguished from the others; none if there is no room for
/// one.
std::optional<std::pair<int64_t, int64_t>> pair_between(int64_t low, int64_t high, const SampleSizes& others) {
  constexpr int64_t kMostTried = 64;
  for (int64_t first = low + 1; first < std::min(high, low + kMostTried); ++first) {
    if (!is_odd_prime(first)) continue;
    for (int64_t second = (high - 1) / 2 * 2; second > std::max(first, high - kMostTried); second -= 2)
      if (is_apart({first, second}, others)) return std::pair(first, second);
  }
  return std::nullopt;
}

/// Samples between the values that symbols have had, or close to these.
std::optional<SampleSizes> between(const SampleSizes& seen) {
  constexpr int64_t kNear = 16;
  SampleSizes samples;
  for (const auto& [one, other] : seen) {
    const auto [low, high] = std::minmax(one, other);
    auto found = pair_between(low, high, samples);
    if (!found) found = pair_between(std::max<int64_t>(2, low - kNear), high + kNear, samples);
    if (!found) return std::nullopt;
    samples.push_back(*found);
  }
  return samples;
}

/// Samples below the values that symbols have had.
std::optional<SampleSizes> below(const SampleSizes& seen) {
  SampleSizes samples;
  for (const auto& [one, other] : seen) {
    const auto found = pair_between(2, std::min(one, other), samples);
    if (!found) return std::nullopt;
    samples.push_back(*found);
  }
  return samples;
}

}  // namespace

std::vector<SampleSizes> sample_choices(const SampleSizes& seen) {
  std::vector<SampleSizes> choices;
  if (seen.size() > std::size(kLarge)) return choices;
  if (auto samples = between(seen)) choices.push_back(*std::move(samples));
  choices.emplace_back(kLarge, kLarge + seen.size());
  if (auto samples = below(seen)) choices.push_back(*std::move(samples));
  return choices;
}

SampleSizes small_samples(size_t count, bool tells_sums) {
  const auto* samples = tells_sums ? kSmall : kPrimes;
  return {samples, samples + std::min(count, kMostSymbols)};
}

SampleSizes larger_samples(const std::vector<int64_t>& at_hand) {
  SampleSizes samples;
  int64_t first = std::ranges::max(at_hand.empty() ? std::vector<int64_t>{0} : at_hand);
  for (size_t i = 0; i < at_hand.size(); ++i) {
    do ++first;
    while (!is_odd_prime(first));
    // All first values are smaller than all second values.
    int64_t second = 2 * first;
    while (!is_apart({first, second}, samples)) second += 2;
    samples.emplace_back(first, second);
  }
  return samples;
}

}  // namespace weft::programs
