#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace weft::device {

/// What autocast does to the arguments of an operation.
enum class Casting : uint8_t {
  kLower,    ///< to the lower precision that is asked for
  kFloat,    ///< to float32
  kPromote,  ///< to the widest type among them
};

/// Operations of ATen with their overloads, `conv2d.padding`, and what is done to their arguments.
struct CastList {
  std::span<const std::string_view> lower, to_float, promote;
};

/// PyTorch/XLA's list (torch_xla/csrc/autocast_mode.cpp).
CastList cast_list_of_xla();

/// The CPU's list exists only inside PyTorch's library. The library tells which operations are in it, but not how each
/// is cast. So `to_float` is empty: all other operations of the list are cast to float32. A test compares each of its
/// operations with the CPU's.
CastList cast_list_of_cpu();

}  // namespace weft::device
