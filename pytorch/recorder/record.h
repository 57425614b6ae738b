#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::recorder {

/// What a run of a function did, word for word: its inputs' types, each operation with its attributes and which values
/// it read, its results' types, which values it returned. Two runs with the same record computed the same function of
/// their inputs and of the tensors that they read from outside.
class Record {
 public:
  enum class Kind : uint8_t {
    kFixed,  ///< an operation, a reference, a dtype, a flag, a letter
    kSize,   ///< an integer: a size, or what may depend on one
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
  /// Another record as a part of this one.
  void append(const Record& part);

  /// Equal for records that differ in sizes and numbers only.
  uint64_t structure() const { return structure_ ^ words_.size(); }
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

/// The records of one function at all sizes: a record in which some sizes are a factor times symbols, and some numbers
/// may be any.
class Template {
 public:
  /// What was recorded where each symbol had the one or the other prime. The template is that of `first` alone if
  /// `primes` is empty. Numbers in which they differ are free. Throws Mismatch where the two don't do the same.
  struct Mismatch {};
  Template(const Record& first, const Record& second, const std::vector<std::pair<int64_t, int64_t>>& primes);

  /// Lets a number be any; `word` is its place in the record.
  void free_number(size_t word);

  /// Whether the record is this template with some sizes for its symbols and the free numbers of its own.
  bool matches(const Record& record) const;
  /// Where the record differs from the template in numbers; empty if they match, or if they differ in anything else.
  std::vector<size_t> differing_numbers(const Record& record) const;
  const std::vector<size_t>& free() const { return free_; }
  /// The record's values of the free numbers, in that order.
  std::vector<double> free_numbers(const Record& record) const;

  uint64_t structure() const { return structure_; }
  size_t bytes() const { return words_.capacity() * sizeof(Word); }

 private:
  struct Word {
    int64_t factor;  ///< the word itself where there are no symbols
    Record::Kind kind;
    bool is_free = false;
    int32_t product = -1;  ///< in products_; -1: no symbols
  };

  Word word(int64_t first, int64_t second, Record::Kind kind, const std::vector<std::pair<int64_t, int64_t>>& primes);
  /// False where the record differs in anything but numbers; the places of those that differ go to `numbers`.
  bool compare(const Record& record, std::vector<size_t>* numbers) const;
  bool bind(const Record& record, std::vector<int64_t>& values) const;

  std::vector<Word> words_;
  std::vector<std::vector<uint8_t>> products_;  ///< of symbols, that occur
  std::vector<size_t> binders_;                 ///< by symbol: the word that is its size alone
  std::vector<size_t> free_;
  uint64_t structure_;
};

}  // namespace weft::recorder
