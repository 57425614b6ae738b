#pragma once

#include <string>

namespace weft {

/// The build ID that the linker gave the binary with this code in it (the note NT_GNU_BUILD_ID, a hash of what it
/// linked), as hexadecimal digits. Empty if there is none.
std::string build_id();

}  // namespace weft
