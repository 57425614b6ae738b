#include "programs/generaliser.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

namespace weft::programs {

namespace {

using Leaf = SizesAtHand::Leaf;
using Outcome = Rerun::Outcome;

SizeKey key_of(const SizesAtHand& at_hand, size_t leaf, size_t dim) {
  SizeKey key{std::get<int64_t>(at_hand.leaves[leaf].sizes[dim])};
  for (const auto& each : at_hand.differing)
    if (each.leaf == leaf && each.dim == dim) key.name = "was " + std::to_string(each.before);
  return key;
}

SizeKey key_of_outer(SizeKey key, bool is_by_size) {
  if (is_by_size) key.name.clear();
  return key;
}

void add(std::vector<SizeKey>& keys, SizeKey key) {
  if (std::ranges::find(keys, key) == keys.end()) keys.push_back(std::move(key));
}

std::vector<SizeKey> all_keys(const SizesAtHand& at_hand, bool is_by_size) {
  std::vector<SizeKey> keys;
  for (size_t i = 0; i < at_hand.leaves.size(); ++i) {
    const Leaf& leaf = at_hand.leaves[i];
    for (size_t dim = 0; dim < leaf.sizes.size(); ++dim) {
      if (const auto* outer = std::get_if<SizesAtHand::Outer>(&leaf.sizes[dim])) {
        for (const SizeKey& key : *outer) add(keys, key_of_outer(key, is_by_size));
      } else if (std::ranges::find(leaf.dims, dim) != leaf.dims.end()) {
        add(keys, key_of(at_hand, i, dim));
      }
    }
  }
  return keys;
}

std::vector<std::vector<int64_t>> shapes_of(const std::vector<Leaf>& leaves) {
  std::vector<std::vector<int64_t>> shapes;
  for (const Leaf& leaf : leaves) {
    auto& shape = shapes.emplace_back();
    for (const auto& size : leaf.sizes) shape.push_back(std::get<int64_t>(size));
  }
  return shapes;
}

std::vector<Symbols> small_and_larger(const std::vector<SizeKey>& keys) {
  return {Symbols::small(keys, /*guesses=*/true), Symbols::larger(keys, /*guesses=*/true)};
}

}  // namespace

// ---- one attempt

SizeAttempt::SizeAttempt(SizesAtHand at_hand, Symbols symbols, bool is_by_size)
    : at_hand_(std::move(at_hand)), symbols_(std::move(symbols)), is_by_size_(is_by_size) {
  for (size_t i = 0; i < at_hand_.leaves.size(); ++i) {
    const Leaf& leaf = at_hand_.leaves[i];
    auto& found = symbol_of_.emplace_back(leaf.sizes.size());
    for (size_t dim : leaf.dims)
      if (std::holds_alternative<int64_t>(leaf.sizes[dim])) found[dim] = symbols_.find(key_of(at_hand_, i, dim));
  }
}

std::vector<std::optional<int64_t>> SizeAttempt::sizes(size_t leaf, size_t run) const {
  if (!followed_.empty() && run != Symbols::kAtHand) return {followed_[run][leaf].begin(), followed_[run][leaf].end()};
  std::vector<std::optional<int64_t>> found;
  for (size_t dim = 0; dim < symbol_of_[leaf].size(); ++dim) {
    const auto* number = std::get_if<int64_t>(&at_hand_.leaves[leaf].sizes[dim]);
    const std::optional<size_t> symbol = symbol_of_[leaf][dim];
    if (symbol) {
      found.push_back(symbols_.value(*symbol, run));
    } else {
      found.push_back(number != nullptr ? std::optional(*number) : std::nullopt);
    }
  }
  return found;
}

std::optional<int64_t> SizeAttempt::outer(const SizeKey& key, size_t run) const {
  const std::optional<size_t> symbol = symbols_.find(key_of_outer(key, is_by_size_));
  return symbol ? symbols_.value(*symbol, run) : key.at_hand;
}

int64_t SizeAttempt::alike(int64_t size, size_t run) const {
  std::optional<size_t> symbol = symbols_.find(SizeKey{size});
  for (const auto& each : at_hand_.differing) {
    const SizeKey key = key_of(at_hand_, each.leaf, each.dim);
    if (!symbol && key.at_hand == size) symbol = symbols_.find(key);
  }
  return symbol ? symbols_.value(*symbol, run).value_or(size) : size;
}

void SizeAttempt::follow() {
  const std::vector<std::vector<int64_t>> now = shapes_of(at_hand_.leaves);
  const size_t count = now.size() - at_hand_.follow(now).size();
  std::vector<std::vector<std::vector<int64_t>>> by_run;
  for (size_t run : {0, 1}) {
    std::vector<std::vector<int64_t>> first;
    for (size_t leaf = 0; leaf < count; ++leaf) {
      auto& shape = first.emplace_back();
      for (const auto& size : sizes(leaf, run)) shape.push_back(*size);
    }
    const auto last = at_hand_.follow(first);
    first.insert(first.end(), last.begin(), last.end());
    by_run.push_back(std::move(first));
  }
  followed_ = std::move(by_run);
  std::set<std::tuple<int64_t, int64_t, int64_t>> known;
  for (size_t i = 0; i < symbols_.keys().size(); ++i)
    known.emplace(symbols_.samples()[i].first, symbols_.samples()[i].second, *symbols_.keys()[i].at_hand);
  for (size_t leaf = count; leaf < now.size(); ++leaf) {
    for (size_t dim : at_hand_.leaves[leaf].dims) {
      const int64_t one = followed_[0][leaf][dim], two = followed_[1][leaf][dim], size = now[leaf][dim];
      if (one != two && known.emplace(one, two, size).second)
        symbols_.add({size, "of leaf " + std::to_string(leaf) + ", dim " + std::to_string(dim)}, {one, two});
    }
  }
}

// ---- their order

namespace {

class Generaliser {
 public:
  Generaliser(const SizesAtHand& at_hand, Rerun& rerun) : given_(at_hand), narrow_(at_hand), rerun_(rerun) {
    narrow_.differing.clear();
  }

  bool run() {
    if (given_.follow) return followed();
    return wider() || widest() || narrow();
  }

 private:
  bool followed();
  bool wider();
  bool widest();
  bool narrow();
  std::vector<SizeKey> those_that_can_be(const SizesAtHand& more, const std::vector<SizeKey>& keys);
  Outcome attempt_beyond(const SizesAtHand& at_hand, Symbols symbols) {
    return rerun_.attempt(SizeAttempt(at_hand, std::move(symbols), is_by_size_), /*is_beyond=*/true);
  }
  bool attempt(Symbols symbols) {
    return rerun_.attempt(SizeAttempt(narrow_, std::move(symbols), is_by_size_), /*is_beyond=*/false) == Outcome::kMade;
  }

  const SizesAtHand& given_;
  SizesAtHand narrow_;  ///< with symbols for the dims that are symbols by default
  Rerun& rerun_;
  bool is_by_size_ = false;
};

/// Tries symbols for the sizes of the first leaves, and for those sizes of the last leaves that can't be computed from
/// the first leaves' sizes.
bool Generaliser::followed() {
  SizesAtHand first = narrow_;
  first.leaves.resize(first.leaves.size() - given_.follow(shapes_of(first.leaves)).size());
  SizeAttempt sizes(narrow_, Symbols::larger(all_keys(first, is_by_size_), /*guesses=*/false), is_by_size_);
  sizes.follow();
  return rerun_.attempt(sizes, /*is_beyond=*/false) == Outcome::kMade;
}

/// Tries symbols also for the sizes in which earlier calls differed from this one.
bool Generaliser::wider() {
  if (given_.differing.empty()) return false;
  SizesAtHand more = given_;
  for (const auto& each : given_.differing) {
    std::vector<size_t>& dims = more.leaves[each.leaf].dims;
    if (std::ranges::find(dims, each.dim) == dims.end()) dims.push_back(each.dim);
  }
  const std::vector<SizeKey> keys = all_keys(more, is_by_size_);
  SampleSizes seen;
  for (const SizeKey& key : keys) {
    const int64_t now = key.at_hand.value_or(0);
    seen.emplace_back(now, now);
    for (const auto& each : given_.differing)
      if (key_of(more, each.leaf, each.dim) == key) seen.back().first = each.before;
  }
  return widen(keys, seen, *given_.attempts,
               [&](Symbols symbols) { return attempt_beyond(more, std::move(symbols)); }) == Outcome::kMade;
}

/// Tries symbols for all dims for which a symbol is better than a number. If that fails, tries symbols for as many of
/// these dims as can be symbols.
bool Generaliser::widest() {
  if (!given_.has_more_dims || !given_.has_run) return false;
  SizesAtHand more = narrow_;
  for (Leaf& leaf : more.leaves) leaf.dims = leaf.more_dims;
  std::vector<SizeKey> keys = all_keys(more, is_by_size_);
  keys.resize(std::min(keys.size(), kMostSymbols));
  if (keys.empty()) return false;
  std::vector<Symbols> choices = small_and_larger(keys);
  if (keys.size() == 1)
    for (const auto& sample : given_.samples) choices.emplace_back(keys, SampleSizes{sample}, /*guesses=*/true);
  for (Symbols& symbols : choices) {
    const Outcome outcome = attempt_beyond(more, std::move(symbols));
    if (outcome != Outcome::kFailed) return outcome == Outcome::kMade;
  }
  const std::vector<SizeKey> allowed = those_that_can_be(more, keys);
  if (allowed.empty() || allowed.size() == keys.size()) return false;
  for (Symbols& symbols : small_and_larger(allowed)) {
    const Outcome outcome = attempt_beyond(more, std::move(symbols));
    if (outcome != Outcome::kFailed) return outcome == Outcome::kMade;
  }
  return false;
}

std::vector<SizeKey> Generaliser::those_that_can_be(const SizesAtHand& more, const std::vector<SizeKey>& keys) {
  std::vector<SizeKey> allowed;
  if (keys.size() == 1) return allowed;
  for (const SizeKey& key : keys) {
    allowed.push_back(key);
    std::vector<Symbols> choices = small_and_larger(allowed);
    if (std::ranges::none_of(choices, [&](Symbols& symbols) {
          return rerun_.does_same(SizeAttempt(more, std::move(symbols), is_by_size_));
        }))
      allowed.pop_back();
  }
  return allowed;
}

bool Generaliser::narrow() {
  std::vector<SizeKey> keys = all_keys(narrow_, is_by_size_);
  std::set<std::optional<int64_t>> values;
  for (const SizeKey& key : keys) values.insert(key.at_hand);
  if (values.size() < keys.size()) {
    if (attempt(Symbols::small(keys, /*guesses=*/false))) return true;
    is_by_size_ = true;
    keys = all_keys(narrow_, is_by_size_);
  }
  if (attempt(Symbols::small(keys, given_.has_run))) return true;
  for (size_t i = 0; keys.size() > 1 && i < keys.size(); ++i) {
    std::vector<SizeKey> others = keys;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    if (attempt(Symbols::small(std::move(others), given_.has_run))) return true;
  }
  return !keys.empty() && attempt(Symbols());
}

}  // namespace

Outcome widen(const std::vector<SizeKey>& keys, const SampleSizes& seen, Attempts& attempts,
              const std::function<Outcome(Symbols)>& attempt) {
  for (SampleSizes& samples : sample_choices(seen)) {
    const Outcome outcome = attempt(Symbols(keys, std::move(samples), /*guesses=*/true));
    if (outcome == Outcome::kMade) return outcome;
    if (outcome == Outcome::kUnwanted) break;
  }
  ++attempts.failed;
  return Outcome::kFailed;
}

std::shared_ptr<record::Template> exact_template(const record::Record& run) {
  record::SizeFit none({}, {}, false);
  return std::make_shared<record::Template>(run, run, nullptr, none);
}

bool generalise(const SizesAtHand& at_hand, Rerun& rerun) { return Generaliser(at_hand, rerun).run(); }

}  // namespace weft::programs
