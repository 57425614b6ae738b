#pragma once

#include <optional>
#include <string>

namespace weft::jit {

/// Objects on disk, one file each, in settings().cache_dir. They are machine code, so nobody but the user may be able
/// to put one there: the folder must be his own and writable to nobody else, and so must each file. Where that is not
/// so, or anything fails, an object is compiled each time; that is never an error, and nothing waits.
///
/// - The folder and the parents it lacks are made with mode 0700. One that is there is used as it is or not at all: its
///   mode is not changed, since the user may share it on purpose (XDG_CACHE_HOME). It is opened once an access and
///   checked by its descriptor, and all files are reached through that.
/// - The folder itself must not be a symbolic link; what is above it may be (~/.cache on another disk), since whoever
///   changes that can at worst lead to another private folder of the user's.
/// - Files are opened without following links or waiting (a FIFO), and must be regular. They are written to a temporary
///   name and renamed, so that a reader meets a whole one. Each begins with a header that holds the whole key and a
///   checksum of the object: a damaged, foreign or colliding file is ignored.
/// - Each store looks at the folder: temporary files that an hour ago were left by a process that died are removed, and
///   so are, beyond settings().cache_bytes, the objects that were not loaded for the longest time.
std::optional<std::string> load_object(const std::string& key);
void store_object(const std::string& key, const std::string& object);

}  // namespace weft::jit
