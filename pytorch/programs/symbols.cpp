#include "programs/symbols.h"

#include <algorithm>

namespace weft::programs {

Symbols Symbols::small(std::vector<SizeKey> keys, bool guesses) {
  keys.resize(std::min(keys.size(), kMostSymbols));
  SampleSizes samples = small_samples(keys.size(), guesses);
  return {std::move(keys), std::move(samples), guesses};
}

Symbols Symbols::larger(std::vector<SizeKey> keys, bool guesses) {
  keys.resize(std::min(keys.size(), kMostSymbols));
  std::vector<int64_t> at_hand;
  for (const SizeKey& key : keys) at_hand.push_back(key.at_hand.value_or(0));
  return {std::move(keys), larger_samples(at_hand), guesses};
}

void Symbols::add(SizeKey key, std::pair<int64_t, int64_t> sample) {
  keys_.push_back(std::move(key));
  samples_.push_back(sample);
}

std::optional<size_t> Symbols::find(const SizeKey& key) const {
  const auto place = std::ranges::find(keys_, key);
  if (place == keys_.end()) return std::nullopt;
  return static_cast<size_t>(place - keys_.begin());
}

std::optional<int64_t> Symbols::value(size_t symbol, size_t run) const {
  if (run == kAtHand) return keys_.at(symbol).at_hand;
  return run == 0 ? samples_.at(symbol).first : samples_.at(symbol).second;
}

std::vector<size_t> Symbols::runs() const {
  if (keys_.empty()) return {0};
  if (std::ranges::all_of(keys_, [](const SizeKey& key) { return key.at_hand.has_value(); })) return {0, 1, kAtHand};
  return {0, 1};
}

record::SizeFit Symbols::fit() const {
  std::vector<int64_t> at_hand;
  if (runs().size() > kAtHand)
    for (const SizeKey& key : keys_) at_hand.push_back(*key.at_hand);
  return {samples_, std::move(at_hand), guesses_};
}

}  // namespace weft::programs
