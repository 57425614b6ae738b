#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::jit {

/// 64 hexadecimal digits that no other list of texts has (BLAKE3): in an object's key in the place of what is too long
/// to stand in it.
std::string digest(const std::vector<std::string_view>& texts);

}  // namespace weft::jit
