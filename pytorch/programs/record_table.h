#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "programs/widening.h"
#include "record/record.h"

namespace weft::programs {

/// The bounds of a table of records.
struct TableBounds {
  size_t entries;
  size_t alike = 8;  ///< entries of one structure
  size_t bytes = size_t{1} << 26;
};

/// What is known about runs, by their records: the one place where a run finds what was made for another run. An entry
/// is found only if each of its patterns, filled with the run's sizes and numbers, equals the run's record word for
/// word.
///
/// Beyond its bounds the table drops the least recently used entries. Used by one thread at a time. Dropped values are
/// returned to the caller, since freeing them may call the table again.
template <typename Value>
class RecordTable {
 public:
  using Patterns = std::vector<std::shared_ptr<const record::Template>>;
  struct Entry {
    uint64_t structure;  ///< a hash of the runs' structures, and of all else that the value depends on
    Patterns patterns;   ///< one for each run
    Value value;
    size_t bytes;  ///< of memory, patterns included
  };
  using Reference = std::shared_ptr<Entry>;
  using Dropped = std::vector<Reference>;

  explicit RecordTable(TableBounds bounds) : bounds_(bounds) {}

  /// The entries with this structure.
  std::vector<Reference> alike(uint64_t structure) const {
    std::vector<Reference> found;
    auto [first, end] = by_structure_.equal_range(structure);
    for (auto each = first; each != end; ++each) found.push_back(*each->second);
    return found;
  }

  /// The entry whose patterns match the records, and for which `fits` holds; null if there is none. `fits` may call the
  /// table.
  template <std::predicate<const Entry&> Fits>
  Reference find(uint64_t structure, std::span<const record::Record* const> records, Fits fits) {
    for (Reference& entry : alike(structure)) {
      if (!matches(*entry, records) || !fits(*entry)) continue;
      used(*entry);
      return std::move(entry);
    }
    return nullptr;
  }

  /// Marks the entry as the most recently used.
  void used(const Entry& entry) {
    auto [each, end] = by_structure_.equal_range(entry.structure);
    for (; each != end; ++each)
      if (each->second->get() == &entry) return order_.splice(order_.begin(), order_, each->second);
  }

  [[nodiscard]] Dropped put(Reference entry) {
    Dropped dropped;
    while (by_structure_.count(entry->structure) >= bounds_.alike)
      drop(last([&](const Reference& each) { return each->structure == entry->structure; }), dropped);
    while (!order_.empty() && (order_.size() >= bounds_.entries || bytes_ + entry->bytes > bounds_.bytes))
      drop(std::prev(order_.end()), dropped);
    bytes_ += entry->bytes;
    order_.push_front(entry);
    by_structure_.emplace(entry->structure, order_.begin());
    return dropped;
  }

  /// The attempts so far to generalise runs of this structure over these sizes, each given as (place, dim).
  std::shared_ptr<Attempts> attempts(uint64_t structure, const std::vector<std::pair<size_t, size_t>>& sizes) {
    constexpr size_t kMostAttempts = 1024;
    if (attempts_.size() > kMostAttempts) attempts_.clear();
    auto& found = attempts_[{structure, sizes}];
    if (found == nullptr) found = std::make_shared<Attempts>();
    return found;
  }

  size_t size() const { return order_.size(); }
  size_t bytes() const { return bytes_; }
  const TableBounds& bounds() const { return bounds_; }

 private:
  using Place = typename std::list<Reference>::iterator;

  static bool matches(const Entry& entry, std::span<const record::Record* const> records) {
    return std::ranges::equal(entry.patterns, records, [](const auto& pattern, const record::Record* of_run) {
      return pattern->matches(*of_run);
    });
  }

  template <typename Meant>
  Place last(Meant meant) {
    Place place = std::prev(order_.end());
    while (!meant(*place)) --place;
    return place;
  }

  void drop(Place place, Dropped& dropped) {
    auto [each, end] = by_structure_.equal_range((*place)->structure);
    while (each->second != place) ++each;
    by_structure_.erase(each);
    bytes_ -= (*place)->bytes;
    dropped.push_back(std::move(*place));
    order_.erase(place);
  }

  TableBounds bounds_;
  std::list<Reference> order_;  ///< the last used entry first
  std::unordered_multimap<uint64_t, Place> by_structure_;
  size_t bytes_ = 0;
  std::map<std::pair<uint64_t, std::vector<std::pair<size_t, size_t>>>, std::shared_ptr<Attempts>> attempts_;
};

}  // namespace weft::programs
