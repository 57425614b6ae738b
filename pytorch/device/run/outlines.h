#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/graph/batch.h"
#include "device/graph/history_table.h"

namespace weft::device {

/// Known batches by their outlines. A batch that is found needs no record: an outline with the same words, and the same
/// numbers but for those that are inputs of the program, has an equal record.
///
/// Entries belong to another table, and are not found once that has dropped them. Used by one thread at a time.
template <typename Entry>
class Outlines {
 public:
  struct Found {
    std::shared_ptr<Entry> entry;
    std::vector<double> free;  ///< the numbers that are inputs
  };

  std::optional<Found> find(const Batch::Outline& outline) {
    table_.start() = outline.words;
    const Known* known = table_.find();
    if (known == nullptr || !has_fixed_numbers(*known, outline.numbers)) return std::nullopt;
    Found found{known->entry.lock(), {}};
    if (found.entry == nullptr) return std::nullopt;
    for (const size_t place : known->free) found.free.push_back(outline.numbers[place]);
    return found;
  }

  /// `free`: which of the numbers are inputs, in the order of the inputs.
  void put(Batch::Outline outline, const std::shared_ptr<Entry>& entry, std::vector<size_t> free) {
    bytes_ += sizeof(int64_t) * outline.words.size() + sizeof(double) * outline.numbers.size();
    if (bytes_ > kMostBytes) {
      table_ = HistoryTable<Known>(kMost);
      bytes_ = 0;
    }
    Known known{entry, std::move(outline.numbers), {}, std::move(free)};
    known.is_free.resize(known.numbers.size());
    for (const size_t place : known.free) known.is_free.at(place) = true;
    table_.add(std::move(outline.words), std::move(known));
  }

 private:
  struct Known {
    std::weak_ptr<Entry> entry;
    std::vector<double> numbers;
    std::vector<bool> is_free;
    std::vector<size_t> free;
  };

  static bool has_fixed_numbers(const Known& known, const std::vector<double>& numbers) {
    for (size_t i = 0; i < numbers.size(); ++i)
      if (!known.is_free[i] && std::memcmp(&known.numbers[i], &numbers[i], sizeof(double)) != 0) return false;
    return true;
  }

  static constexpr size_t kMost = 1U << 12U, kMostBytes = size_t{1} << 24U;
  HistoryTable<Known> table_{kMost};
  size_t bytes_ = 0;
};

}  // namespace weft::device
