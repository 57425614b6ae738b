#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::fuzz {

/// The text with one token or line exchanged, repeated or dropped, so that much of what comes out is still a program.
/// Empty when the text has no tokens.
std::string mutate(std::string_view text, uint64_t seed);

}  // namespace weft::fuzz
