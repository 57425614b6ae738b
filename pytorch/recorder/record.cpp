#include "recorder/record.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft::recorder {

namespace {
constexpr int64_t kSmallestSymbol = 2;  // of 0 or 1 elements operations do something else: broadcast, give NaN
}

void Record::sizes(std::span<const int64_t> sizes) {
  fixed(static_cast<int64_t>(sizes.size()));
  for (int64_t one : sizes) size(one);
}

void Record::number(double number) { push(std::bit_cast<int64_t>(number), Kind::kNumber); }

void Record::text(std::string_view text) {
  fixed(static_cast<int64_t>(text.size()));
  for (size_t at = 0; at < text.size(); at += sizeof(int64_t)) {
    int64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
    fixed(word);
  }
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

Template::Template(const Record& first, const Record& second, const std::vector<std::pair<int64_t, int64_t>>& primes)
    : binders_(primes.size(), SIZE_MAX), structure_(first.structure()) {
  if (first.kinds() != second.kinds() || first.structure() != second.structure()) throw Mismatch();
  words_.reserve(first.words().size());
  for (size_t i = 0; i < first.words().size(); ++i) {
    words_.push_back(word(first.words()[i], second.words()[i], first.kinds()[i], primes));
    if (words_[i].is_free) free_.push_back(i);
    if (words_[i].product < 0 || words_[i].factor != 1) continue;
    const auto& product = products_[static_cast<size_t>(words_[i].product)];
    if (product.size() == 1 && binders_[product[0]] == SIZE_MAX) binders_[product[0]] = i;
  }
  for (const auto& product : products_) {
    for (uint8_t symbol : product) {
      if (binders_[symbol] == SIZE_MAX) throw Mismatch();
    }
  }
}

Template::Word Template::word(int64_t first, int64_t second, Record::Kind kind,
                              const std::vector<std::pair<int64_t, int64_t>>& primes) {
  if (first == second) return {first, kind};
  if (kind == Record::Kind::kNumber) return {first, kind, true};
  if (kind != Record::Kind::kSize) throw Mismatch();
  std::vector<uint8_t> product;
  for (size_t symbol = 0; symbol < primes.size(); ++symbol) {
    auto [p, q] = primes[symbol];
    while (first != 0 && first % p == 0 && second % q == 0 && first != second) {
      first /= p, second /= q;
      product.push_back(static_cast<uint8_t>(symbol));
    }
  }
  if (first != second) throw Mismatch();
  auto known = std::find(products_.begin(), products_.end(), product);
  auto place = static_cast<int32_t>(known - products_.begin());
  if (known == products_.end()) products_.push_back(std::move(product));
  return {first, kind, false, place};
}

void Template::free_number(size_t word) {
  if (words_.at(word).is_free) return;
  words_.at(word).is_free = true;
  free_.push_back(word);
}

bool Template::bind(const Record& record, std::vector<int64_t>& values) const {
  values.clear();
  for (const auto& product : products_) {
    int64_t value = 1;
    for (uint8_t symbol : product) {
      int64_t size = record.words()[binders_[symbol]];
      if (size < kSmallestSymbol || __builtin_mul_overflow(value, size, &value)) return false;
    }
    values.push_back(value);
  }
  return true;
}

bool Template::compare(const Record& record, std::vector<size_t>* numbers) const {
  if (record.structure() != structure_ || record.words().size() != words_.size()) return false;
  thread_local std::vector<int64_t> values;
  if (!bind(record, values)) return false;
  for (size_t i = 0; i < words_.size(); ++i) {
    const Word& word = words_[i];
    int64_t wanted = word.factor;
    if (word.product >= 0 && __builtin_mul_overflow(wanted, values[static_cast<size_t>(word.product)], &wanted)) {
      return false;
    }
    if (record.kinds()[i] != word.kind) return false;
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

}  // namespace weft::recorder
