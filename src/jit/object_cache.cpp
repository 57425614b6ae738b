#include "jit/object_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"

namespace weft::jit {
namespace {

constexpr char kMagic[] = "weft object 1\n";
constexpr int64_t kMostBytes = int64_t{1} << 28;  // no larger file is read; no object comes near this size
constexpr time_t kStaleSeconds = 3600;            // a file is written in far less

/// A file descriptor; negative when there is none.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() { close(); }

  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }
  /// Gives up the descriptor; the caller closes it.
  int release() { return std::exchange(number_, -1); }
  /// Closes the file. Returns whether everything written is in it.
  bool close() {
    const int number = release();
    return number < 0 || ::close(number) == 0;
  }

 private:
  int number_;
};

struct CloseEntries {
  void operator()(DIR* entries) const { ::closedir(entries); }
};

/// FNV-1a, 64 bits.
uint64_t checksum(std::string_view bytes) {
  uint64_t hash = 14695981039346656037ull;
  for (unsigned char c : bytes) hash = (hash ^ c) * 1099511628211ull;
  return hash;
}

std::string name_of(const std::string& key, Stored what) {
  return fmt::format("{:016x}.{}", checksum(key), what == Stored::kModule ? 'o' : 'p');
}

/// Whether `name` is an object's file name or, if `temporary`, the longer temporary name of an object.
bool is_object(std::string_view name, bool temporary) {
  constexpr size_t kDigits = 16;
  return name.size() >= kDigits + 2 && name.find_first_not_of("0123456789abcdef") == kDigits &&
         (name.substr(kDigits, 2) == ".o" || name.substr(kDigits, 2) == ".p") &&
         (name.size() > kDigits + 2) == temporary;
}

std::string header_of(const std::string& key, std::string_view object) {
  return fmt::format("{}{:016x} {} {}\n{}\n", kMagic, checksum(object), object.size(), key.size(), key);
}

/// Whether a file or folder is the user's own, and writable to nobody else.
bool is_private(const struct stat& info) {
  return info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// Makes the folder and the parents it lacks.
void make_folder(const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    ::mkdir(path.substr(0, end).c_str(), 0700);
  ::mkdir(path.c_str(), 0700);
}

/// The cache's folder; none if it can't be trusted.
Descriptor open_folder() {
  Descriptor folder(::open(settings().cache_dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (folder && (::fstat(folder.number(), &info) != 0 || !is_private(info))) folder.close();
  return folder;
}

bool write_all(int file, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t n = ::write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

/// The first `size` bytes; fewer if the file ends before, or on an error.
std::string read_all(int file, size_t size) {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    ssize_t n = ::read(file, bytes.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

/// The contents of a file of the folder; empty if it is missing or can't be trusted. Sets its access time, for
/// make_room().
std::string read_file(const Descriptor& folder, const std::string& name) {
  Descriptor file(::openat(folder.number(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info{};
  if (!file || ::fstat(file.number(), &info) != 0) return "";
  if (!S_ISREG(info.st_mode) || !is_private(info) || info.st_size > kMostBytes) return "";
  const struct timespec times[] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ::futimens(file.number(), times);
  return read_all(file.number(), static_cast<size_t>(info.st_size));
}

/// Bytes that this process has stored since it last looked through the whole folder, and a hash of that folder's path
/// and inode (0: it hasn't looked yet). Threads that store at the same time may disturb both numbers, which costs one
/// look more or less.
std::atomic<int64_t> stored_since_look{0};
std::atomic<uint64_t> folder_looked_at{0};

/// Whether it is time to look through the folder, now that `stored` more bytes are in it.
bool is_due(const Descriptor& folder, int64_t stored, int64_t part) {
  struct stat info{};
  if (::fstat(folder.number(), &info) != 0) return false;
  const uint64_t identity = std::hash<std::string>{}(settings().cache_dir) ^ info.st_ino;
  if (folder_looked_at.exchange(identity) == identity && stored_since_look.fetch_add(stored) + stored < part)
    return false;
  stored_since_look = 0;
  return true;
}

/// Removes stale temporary files and, until the rest fits, the least recently read objects.
///
/// A look takes a system call for each object. So there is one for each sixteenth of the cache's size stored, and it
/// makes room for another sixteenth.
void make_room(const Descriptor& folder, int64_t stored) {
  constexpr int64_t kParts = 16;
  const int64_t part = settings().cache_bytes / kParts;
  if (!is_due(folder, stored, part)) return;
  struct Object {
    std::string name;
    int64_t bytes;
    struct timespec read;
  };
  Descriptor copy(::openat(folder.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::unique_ptr<DIR, CloseEntries> entries(copy ? ::fdopendir(copy.number()) : nullptr);
  if (!entries) return;
  copy.release();  // the stream closes it
  std::vector<Object> objects;
  int64_t bytes = 0;
  const time_t now = ::time(nullptr);
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    struct stat info{};
    if ((!is_object(name, false) && !is_object(name, true)) ||
        ::fstatat(folder.number(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
      continue;
    if (is_object(name, false)) {
      objects.push_back({name, info.st_size, info.st_atim});
      bytes += info.st_size;
    } else if (now - info.st_mtime > kStaleSeconds) {
      ::unlinkat(folder.number(), name.c_str(), 0);
    }
  }
  const int64_t most = settings().cache_bytes - (objects.size() > kParts ? part : 0);
  if (bytes <= most) return;
  std::ranges::sort(objects, {}, [](const Object& each) { return std::pair(each.read.tv_sec, each.read.tv_nsec); });
  for (const Object& oldest : objects) {
    if (bytes <= most) return;
    if (::unlinkat(folder.number(), oldest.name.c_str(), 0) == 0) bytes -= oldest.bytes;
  }
}

}  // namespace

std::optional<std::string> load_object(const std::string& key, Stored what) {
  if (settings().cache_dir.empty()) return std::nullopt;
  Descriptor folder = open_folder();
  if (!folder) return std::nullopt;
  const std::string bytes = read_file(folder, name_of(key, what));
  // The header's length varies with the digits of the object's size, so its end is found by the key.
  size_t end = bytes.find("\n" + key + "\n");
  if (end == std::string::npos) return std::nullopt;
  std::string object = bytes.substr(end + key.size() + 2);
  if (bytes.substr(0, end + key.size() + 2) != header_of(key, object)) return std::nullopt;
  return object;
}

void store_object(const std::string& key, const std::string& object, Stored what) {
  if (settings().cache_dir.empty()) return;
  const std::string header = header_of(key, object);
  if (static_cast<int64_t>(header.size() + object.size()) > std::min(kMostBytes, settings().cache_bytes)) return;
  static std::atomic<uint64_t> serial{0};
  make_folder(settings().cache_dir);
  Descriptor folder = open_folder();
  if (!folder) return;
  const std::string name = name_of(key, what);
  const std::string temporary = fmt::format("{}.{}.{}", name, ::getpid(), serial++);
  Descriptor file(
      ::openat(folder.number(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return;
  bool written = write_all(file.number(), header) && write_all(file.number(), object);
  written = file.close() && written;
  if (!written || ::renameat(folder.number(), temporary.c_str(), folder.number(), name.c_str()) != 0)
    ::unlinkat(folder.number(), temporary.c_str(), 0);
  make_room(folder, static_cast<int64_t>(header.size() + object.size()));
}

}  // namespace weft::jit
