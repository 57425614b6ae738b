#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "record/meta/result_shapes.h"

namespace weft::device {

/// One thread's values by words. A training step looks up the same words in the same order as the step before, so what
/// was found after the same last look-ups is compared first: that costs less than hashing the words.
///
/// Beyond `most` entries all are dropped.
template <typename Value>
class HistoryTable {
 public:
  explicit HistoryTable(size_t most) : most_(most), expected_(size_t{1} << kBits) {}

  /// The words to look up or to add, which the caller appends.
  std::vector<int64_t>& start() {
    words_.clear();
    return words_;
  }

  /// Null if there is no such value. Valid until the next add().
  Value* find() {
    Entry*& expected = expected_[(history_ * kMix) >> (64 - kBits)];
    if (expected == nullptr || expected->first != words_) {
      const auto found = entries_.find(words_);
      if (found == entries_.end()) return nullptr;
      expected = &*found;
    }
    see(*expected);
    return &expected->second;
  }

  void add(std::vector<int64_t> words, Value value) {
    if (entries_.size() >= most_) {
      expected_.assign(expected_.size(), nullptr);
      entries_.clear();
    }
    see(*entries_.insert_or_assign(std::move(words), std::move(value)).first);
  }

 private:
  using Entries = std::unordered_map<std::vector<int64_t>, Value, record::WordsHash>;
  using Entry = typename Entries::value_type;

  /// Appends an entry to the history, of which the last eight remain.
  void see(const Entry& entry) { history_ = (history_ << 8U) ^ ((reinterpret_cast<uintptr_t>(&entry) >> 4U) * kMix); }

  static constexpr uint64_t kMix = 0x9E3779B97F4A7C15U;
  static constexpr int kBits = 11;

  size_t most_;
  Entries entries_;
  std::vector<int64_t> words_;
  uint64_t history_ = 0;          ///< a hash of the last look-ups
  std::vector<Entry*> expected_;  ///< by history: what was found then
};

}  // namespace weft::device
