#include "base/dtype.h"

#include <array>

namespace weft {
namespace {

struct Entry {
  std::string_view name;
  int64_t size;
  bool floating;
};

// Indexed by DType.
constexpr std::array<Entry, 10> kEntries{{{"bool", 1, false},
                                          {"i8", 1, false},
                                          {"u8", 1, false},
                                          {"i16", 2, false},
                                          {"i32", 4, false},
                                          {"i64", 8, false},
                                          {"f16", 2, true},
                                          {"bf16", 2, true},
                                          {"f32", 4, true},
                                          {"f64", 8, true}}};

const Entry& entry(DType dtype) { return kEntries[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t size_of(DType dtype) { return entry(dtype).size; }
bool is_floating(DType dtype) { return entry(dtype).floating; }
bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
std::string_view name_of(DType dtype) { return entry(dtype).name; }

std::optional<DType> dtype_named(std::string_view name) {
  for (size_t i = 0; i < kEntries.size(); ++i)
    if (kEntries[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace weft
