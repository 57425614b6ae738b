#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/size_table.h"
#include "record/size_fit.h"

namespace weft::record {

/// Spells a text as words, without its length.
template <typename Take>
void spell_text(std::string_view text, Take take) {
  for (size_t at = 0; at < text.size(); at += sizeof(int64_t)) {
    int64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
    take(word);
  }
}

/// The record of a run of a function, a sequence of words: the types of its inputs; each operation with its attributes,
/// the values that it read and the types of its results; and the values that the function returned. Two runs with equal
/// records computed the same function of their inputs and of the tensors that they read from outside.
class Record {
 public:
  enum class Kind : uint8_t {
    kFixed,  ///< an operation, a reference, a dtype, a flag, a letter
    kSize,   ///< an integer: a size, or a number that may depend on one
    kNumber  ///< a floating-point attribute, as its bits
  };

  void fixed(int64_t word) {
    structure_ = (structure_ ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15U;
    structure_ ^= structure_ >> 29U;
    push(word, Kind::kFixed);
  }
  void size(int64_t size) { push(size, Kind::kSize); }
  void sizes(std::span<const int64_t> sizes);
  void number(double number);
  void text(std::string_view text);
  /// Appends another record as a part of this one.
  void append(const Record& part);

  /// The record with the words of sizes replaced.
  Record with_sizes(const std::vector<int64_t>& words) const;

  /// A hash that is equal for records that differ only in sizes and numbers.
  uint64_t structure() const { return structure_ ^ words_.size(); }
  void reserve(size_t words) { words_.reserve(words), kinds_.reserve(words); }
  const std::vector<int64_t>& words() const { return words_; }
  const std::vector<Kind>& kinds() const { return kinds_; }
  size_t bytes() const { return words_.capacity() * sizeof(int64_t) + kinds_.capacity(); }

 private:
  void push(int64_t word, Kind kind) {
    words_.push_back(word);
    kinds_.push_back(kind);
  }

  std::vector<int64_t> words_;
  std::vector<Kind> kinds_;
  uint64_t structure_ = 0;
};

/// A pattern for the records of one function at all sizes: a record in which some sizes are expressions of symbols, and
/// some numbers are free. A word has the same sign in all of them, since a negative one counts from an end.
class Template {
 public:
  /// Generalises two records of runs in which each symbol had its first and its second value. The sizes of a third
  /// record, if there is one, must follow from the other two. Numbers that differ are free. Throws Mismatch if the
  /// records did different things.
  struct Mismatch {};
  Template(const Record& first, const Record& second, const Record* third, SizeFit& sizes);

  /// Makes a number free; `word` is its place in the record.
  void free_number(size_t word);

  /// Whether the record is an instance of this template, for some values of the symbols and the free numbers.
  bool matches(const Record& record) const;
  /// The words of the instance for these values of the symbols; nothing where a size overflows.
  std::optional<std::vector<int64_t>> words(const std::vector<int64_t>& symbols) const;
  /// The places of the numbers that differ; empty if the record matches, or differs in anything else.
  std::vector<size_t> differing_numbers(const Record& record) const;
  const std::vector<size_t>& free() const { return free_; }
  /// The record's values of the free numbers, in the order of free().
  std::vector<double> free_numbers(const Record& record) const;

  uint64_t structure() const { return structure_; }
  size_t bytes() const { return words_.capacity() * sizeof(Word); }

 private:
  struct Word {
    int64_t value;  ///< the word itself, unless it is an expression
    Record::Kind kind;
    bool is_free = false;
    int32_t expression = -1;   ///< the index in expressions_
    bool is_negative = false;  ///< whether the word is minus the expression, which is positive
  };

  Word word(size_t i, const Record& first, const Record& second, const Record* third, SizeFit& sizes);
  int32_t number_of(const ir::Dim& dim);
  /// False if the record differs in anything but numbers. The places of numbers that differ go to `numbers`.
  bool compare(const Record& record, std::vector<size_t>* numbers) const;
  bool bind(const Record& record, std::vector<int64_t>& values) const;

  std::vector<Word> words_;
  ir::SizeTable table_;
  std::vector<ir::Dim> dims_;                     ///< the expressions that occur,
  std::vector<ir::SizeTable::Size> expressions_;  ///< and how they are computed
  std::vector<size_t> binders_;                   ///< by symbol: the place of a word that is this symbol alone
  std::vector<size_t> free_;
  uint64_t structure_;
};

}  // namespace weft::record
