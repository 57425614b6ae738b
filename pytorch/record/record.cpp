#include "record/record.h"

#include <algorithm>
#include <bit>
#include <set>

namespace weft::record {

namespace {
constexpr int64_t kSmallestSymbol = 2;  // with 0 or 1 elements operations do something else: broadcast, give NaN
}

void Record::sizes(std::span<const int64_t> sizes) {
  fixed(static_cast<int64_t>(sizes.size()));
  for (int64_t one : sizes) size(one);
}

void Record::number(double number) { push(std::bit_cast<int64_t>(number), Kind::kNumber); }

void Record::text(std::string_view text) {
  fixed(static_cast<int64_t>(text.size()));
  spell_text(text, [this](int64_t word) { fixed(word); });
}

void Record::append(const Record& part) {
  fixed(static_cast<int64_t>(part.words_.size()));
  for (size_t i = 0; i < part.words_.size(); ++i) {
    if (part.kinds_[i] == Kind::kFixed) {
      fixed(part.words_[i]);
    } else {
      push(part.words_[i], part.kinds_[i]);
    }
  }
}

Record Record::with_sizes(const std::vector<int64_t>& words) const {
  Record other;
  for (size_t i = 0; i < words_.size(); ++i) {
    if (kinds_[i] == Kind::kFixed)
      other.fixed(words_[i]);
    else
      other.push(kinds_[i] == Kind::kSize ? words.at(i) : words_[i], kinds_[i]);
  }
  return other;
}

namespace {

/// Word i of the records, which differs, as an expression of its magnitude. None if there is none, or if the word isn't
/// of one sign.
std::optional<ir::Dim> magnitude(size_t i, const Record& first, const Record& second, const Record* third,
                                 SizeFit& sizes) {
  const int64_t sign = first.words()[i] < 0 ? -1 : 1;
  const auto has_sign = [&](const Record& record) { return (record.words()[i] < 0) == (sign < 0); };
  if (!has_sign(second) || (third != nullptr && !has_sign(*third))) return std::nullopt;
  return sizes.find(sign * first.words()[i], sign * second.words()[i],
                    third != nullptr ? std::optional(sign * third->words()[i]) : std::nullopt);
}

}  // namespace

Template::Template(const Record& first, const Record& second, const Record* third, SizeFit& sizes)
    : table_(sizes.symbols()), binders_(sizes.count(), SIZE_MAX), structure_(first.structure()) {
  for (const Record* other : {&second, third ? third : &second})
    if (first.kinds() != other->kinds() || first.structure() != other->structure()) throw Mismatch();
  // All sizes are found first: a size may have factors that only a later word shows.
  for (size_t i = 0; i < first.words().size(); ++i)
    if (first.kinds()[i] == Record::Kind::kSize && first.words()[i] != second.words()[i])
      magnitude(i, first, second, third, sizes);
  words_.reserve(first.words().size());
  for (size_t i = 0; i < first.words().size(); ++i) {
    words_.push_back(word(i, first, second, third, sizes));
    if (words_[i].is_free) free_.push_back(i);
    if (words_[i].expression < 0) continue;
    const ir::Dim& dim = dims_[static_cast<size_t>(words_[i].expression)];
    if (!dim.is_symbol()) continue;
    size_t& binder = binders_[expressions_[static_cast<size_t>(words_[i].expression)].values[0]];
    if (binder == SIZE_MAX) binder = i;
  }
  std::set<std::string> used;
  for (const ir::Dim& dim : dims_) dim.add_symbols(used);
  for (size_t i = 0; i < binders_.size(); ++i) {
    if (binders_[i] == SIZE_MAX && used.contains(sizes.symbols()[i])) throw Mismatch();
  }
}

Template::Word Template::word(size_t i, const Record& first, const Record& second, const Record* third,
                              SizeFit& sizes) {
  const int64_t one = first.words()[i], two = second.words()[i];
  const Record::Kind kind = first.kinds()[i];
  if (kind == Record::Kind::kNumber && (one != two || (third && third->words()[i] != one))) return {one, kind, true};
  if (one == two) return {one, kind};
  if (kind != Record::Kind::kSize) throw Mismatch();
  const auto dim = magnitude(i, first, second, third, sizes);
  if (!dim) throw Mismatch();
  return {0, kind, false, number_of(*dim), one < 0};
}

int32_t Template::number_of(const ir::Dim& dim) {
  const auto known = std::ranges::find(dims_, dim);
  if (known == dims_.end()) {
    dims_.push_back(dim);
    expressions_.push_back(table_.add(dim));
    return static_cast<int32_t>(dims_.size()) - 1;
  }
  return static_cast<int32_t>(known - dims_.begin());
}

void Template::free_number(size_t word) {
  if (words_.at(word).is_free) return;
  words_.at(word).is_free = true;
  free_.push_back(word);
}

bool Template::bind(const Record& record, std::vector<int64_t>& values) const {
  thread_local std::vector<int64_t> sizes;
  sizes.clear();
  for (size_t binder : binders_) {
    sizes.push_back(binder == SIZE_MAX ? kSmallestSymbol : record.words()[binder]);
    if (sizes.back() < kSmallestSymbol) return false;
  }
  values.clear();
  if (!table_.derive<ir::PlainSizes>(sizes)) return false;
  for (const ir::SizeTable::Size& expression : expressions_) {
    const auto value = ir::SizeTable::evaluate<ir::PlainSizes>(expression, sizes);
    auto is_derived = [&](size_t of) { return of >= binders_.size(); };
    if (!value || (*value < kSmallestSymbol && std::ranges::any_of(expression.values, is_derived))) return false;
    values.push_back(*value);
  }
  return true;
}

std::optional<std::vector<int64_t>> Template::words(const std::vector<int64_t>& symbols) const {
  std::vector<int64_t> sizes = symbols, found;
  if (!table_.derive<ir::PlainSizes>(sizes)) return std::nullopt;
  for (const Word& word : words_) {
    found.push_back(word.value);
    if (word.expression < 0) continue;
    const auto value =
        ir::SizeTable::evaluate<ir::PlainSizes>(expressions_[static_cast<size_t>(word.expression)], sizes);
    if (!value) return std::nullopt;
    found.back() = word.is_negative ? -*value : *value;
  }
  return found;
}

bool Template::compare(const Record& record, std::vector<size_t>* numbers) const {
  if (record.structure() != structure_ || record.words().size() != words_.size()) return false;
  thread_local std::vector<int64_t> values;
  if (!bind(record, values)) return false;
  for (size_t i = 0; i < words_.size(); ++i) {
    const Word& word = words_[i];
    const int64_t value = word.expression < 0 ? word.value : values[static_cast<size_t>(word.expression)];
    if (record.kinds()[i] != word.kind) return false;
    // Of another sign a place is counted from the other end.
    if (word.expression >= 0 && value < (word.is_negative ? 1 : 0)) return false;
    const int64_t wanted = word.is_negative ? -value : value;
    if (record.words()[i] == wanted || word.is_free) continue;
    if (word.kind != Record::Kind::kNumber || numbers == nullptr) return false;
    numbers->push_back(i);
  }
  return true;
}

bool Template::matches(const Record& record) const { return compare(record, nullptr); }

std::vector<size_t> Template::differing_numbers(const Record& record) const {
  std::vector<size_t> numbers;
  if (!compare(record, &numbers)) numbers.clear();
  return numbers;
}

std::vector<double> Template::free_numbers(const Record& record) const {
  std::vector<double> numbers;
  for (size_t word : free_) numbers.push_back(std::bit_cast<double>(record.words()[word]));
  return numbers;
}

}  // namespace weft::record
