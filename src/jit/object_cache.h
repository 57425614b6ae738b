#pragma once

#include <optional>
#include <string>

namespace weft::jit {

/// Objects on disk, one file each, in settings().cache_dir. Files are private to the user, written to a temporary name
/// and renamed; each begins with a header that holds the whole key and a checksum of the object, so a damaged, foreign
/// or colliding file is ignored. A directory that cannot be written is no error: the object is compiled each time.
std::optional<std::string> load_object(const std::string& key);
void store_object(const std::string& key, const std::string& object);

}  // namespace weft::jit
