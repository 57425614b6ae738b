#include "ir/type.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace weft::ir {
namespace {

int64_t multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  check(!__builtin_mul_overflow(a, b, &product), "a size overflows 64 bits: {} times {}", a, b);
  return product;
}

}  // namespace

Dim Dim::symbol(std::string name) {
  Dim dim;
  dim.symbols.push_back(std::move(name));
  return dim;
}

int64_t Dim::constant() const {
  internal_check(is_constant(), "the dim {} is not a number", to_string(*this));
  return factor;
}

Dim operator*(const Dim& a, const Dim& b) {
  Dim product(multiply(a.factor, b.factor));
  if (product.factor == 0) return product;
  std::merge(a.symbols.begin(), a.symbols.end(), b.symbols.begin(), b.symbols.end(),
             std::back_inserter(product.symbols));
  return product;
}

std::optional<int64_t> try_evaluate(const Dim& dim, const Bindings& bindings) {
  int64_t value = dim.factor;
  bool overflow = false, zero = value == 0;
  for (const std::string& symbol : dim.symbols) {
    auto it = bindings.find(symbol);
    check(it != bindings.end(), "the symbol {} of the dim {} has no value", symbol, to_string(dim));
    zero = zero || it->second == 0;
    overflow = overflow || __builtin_mul_overflow(value, it->second, &value);
  }
  if (zero) return 0;
  if (overflow) return std::nullopt;
  return value;
}

int64_t evaluate(const Dim& dim, const Bindings& bindings) {
  std::optional<int64_t> value = try_evaluate(dim, bindings);
  check(value.has_value(), "the size {} overflows 64 bits", to_string(dim));
  return *value;
}

Dim element_count(const Shape& shape) {
  // Nothing of anything is nothing, even where the other dims alone would overflow.
  if (std::ranges::find(shape, Dim(0)) != shape.end()) return Dim(0);
  Dim count(1);
  for (const Dim& dim : shape) count = count * dim;
  return count;
}

std::string to_string(const Dim& dim) {
  if (dim.is_constant()) return std::to_string(dim.factor);
  std::string text;
  if (dim.factor != 1) text = std::to_string(dim.factor);
  for (const std::string& symbol : dim.symbols) {
    if (!text.empty()) text += '*';
    text += symbol;
  }
  return text;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const Dim& dim : shape) {
    if (text.size() > 1) text += ',';
    text += to_string(dim);
  }
  return text + "]";
}

std::string to_string(const Type& type) { return std::string(name_of(type.dtype)) + to_string(type.shape); }

}  // namespace weft::ir
