#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

/// Element types. `bool` is one byte, 0 or 1, as in PyTorch.
enum class DType : uint8_t { kBool, kI8, kU8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };

/// Bytes of one element.
int64_t size_of(DType dtype);

/// True iff the type is f16, bf16, f32 or f64.
bool is_floating(DType dtype);

/// True iff the type is f16 or bf16.
bool is_half(DType dtype);

/// The text name: bool, i8, u8, i16, i32, i64, f16, bf16, f32, f64.
std::string_view name_of(DType dtype);

/// The type of that text name; empty when there is none.
std::optional<DType> dtype_named(std::string_view name);

}  // namespace weft
