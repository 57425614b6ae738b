#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::jit {

/// 64 hexadecimal digits that no other list of texts has (BLAKE3). In an object's key they stand for texts that are too
/// long for the key.
std::string digest(const std::vector<std::string_view>& texts);

}  // namespace weft::jit
