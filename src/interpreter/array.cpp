#include "interpreter/array.h"

#include <new>

#include "interpreter/numeric.h"

namespace weft::interpreter {

int64_t count_of(std::span<const int64_t> sizes) {
  int64_t count = 1;
  bool overflow = false;
  for (int64_t size : sizes) {
    if (size == 0) return 0;
    overflow |= __builtin_mul_overflow(count, size, &count);
  }
  if (overflow) throw std::bad_alloc();
  return count;
}

Array::Array(DType type, std::vector<int64_t> shape) : dtype(type), sizes(std::move(shape)) {
  int64_t total = 0;
  if (__builtin_mul_overflow(count_of(sizes), size_of(dtype), &total)) throw std::bad_alloc();
  if (static_cast<size_t>(total) > bytes.max_size()) throw std::bad_alloc();
  bytes.resize(static_cast<size_t>(total));
}

Array Array::copy_of(const View& view) {
  Array array;
  array.dtype = view.dtype;
  array.sizes.assign(view.sizes.begin(), view.sizes.end());
  auto total = static_cast<size_t>(count_of(view.sizes) * size_of(view.dtype));
  const auto* data = static_cast<const std::byte*>(view.data);
  if (total > 0) array.bytes.assign(data, data + total);
  return array;
}

Array Array::of(DType dtype, std::vector<int64_t> sizes, std::span<const double> values) {
  Array array(dtype, std::move(sizes));
  check(static_cast<int64_t>(values.size()) == array.count(),
        "an array of {} elements needs as many values, but got {}", array.count(), values.size());
  dispatch_any(dtype, [&]<typename T>(Tag<T>) {
    for (size_t i = 0; i < values.size(); ++i) array.data<T>()[i] = store<T>(convert<Compute<T>>(values[i]));
  });
  return array;
}

std::vector<double> Array::to_doubles() const {
  std::vector<double> values(static_cast<size_t>(count()));
  dispatch_any(dtype, [&]<typename T>(Tag<T>) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(load(data<T>()[i]));
  });
  return values;
}

float float_from_half(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 0x1f;
  uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0x1f) {  // infinity, or a NaN, which is quiet from here on
    uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13) | quiet);
  }
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  float value = std::ldexp(static_cast<float>(mantissa), -24);  // zero and denormals
  return sign ? -value : value;
}

uint16_t half_from_float(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | ((magnitude >> 13) & 0x3ff);  // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;                               // rounds to 65536 or more
  if (magnitude < 0x38800000) {  // below the smallest normal: multiples of 2^-24, rounded by the addition
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000);
  }
  uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1) - (112u << 23);
  return sign | static_cast<uint16_t>(rounded >> 13);
}

}  // namespace weft::interpreter
