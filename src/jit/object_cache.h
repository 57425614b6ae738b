#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft::jit {

/// What an object is of, which its file's ending tells.
enum class Stored : uint8_t {
  kModule,  ///< one module's machine code: .o
  kProgram  ///< a plan with all objects of its program (engine/program_cache.h): .p
};

/// The object cache on disk: one file for each object, in settings().cache_dir. Objects are machine code, so nobody but
/// the user may be able to put one there: folder and files must be the user's own and writable to nobody else. If they
/// are not, or if anything fails, the object is compiled each time. That is never an error, and nothing waits.
///
/// - The folder and its missing parents are made with mode 0700. An existing folder is used as it is or not at all: its
///   mode is not changed, since the user may share it on purpose (XDG_CACHE_HOME). Each access opens the folder once,
///   checks the descriptor, and reaches all files through it.
/// - The folder itself must not be a symbolic link. Folders above it may be (~/.cache on another disk): whoever can
///   change these can at worst lead to another private folder of the user's.
/// - Files are opened without following links and without waiting (a FIFO), and must be regular. They are written to a
/// temporary name and renamed, so that a reader meets whole files only. Each begins with a header that holds the whole
/// key and a checksum of the object: a damaged, foreign or colliding file is ignored.
/// - Once for so many bytes stored, a process looks at the whole folder. It removes temporary files that are more than
///   an hour old, left by processes that died, and beyond settings().cache_bytes the least recently loaded objects.
std::optional<std::string> load_object(const std::string& key, Stored what);
void store_object(const std::string& key, const std::string& object, Stored what);

}  // namespace weft::jit
