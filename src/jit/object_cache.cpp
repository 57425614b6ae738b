#include "jit/object_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/settings.h"

namespace weft::jit {
namespace {

constexpr char kMagic[] = "weft object 1\n";

/// FNV-1a, 64 bits.
uint64_t checksum(const std::string& bytes) {
  uint64_t hash = 14695981039346656037ull;
  for (unsigned char c : bytes) hash = (hash ^ c) * 1099511628211ull;
  return hash;
}

std::filesystem::path path_of(const std::string& key) {
  return std::filesystem::path(settings().cache_dir) / fmt::format("{:016x}.o", checksum(key));
}

std::string header_of(const std::string& key, const std::string& object) {
  return fmt::format("{}{:016x} {} {}\n{}\n", kMagic, checksum(object), object.size(), key.size(), key);
}

bool belongs_to_us(const std::filesystem::path& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
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

}  // namespace

std::optional<std::string> load_object(const std::string& key) {
  if (settings().cache_dir.empty()) return std::nullopt;
  std::filesystem::path path = path_of(key);
  if (!belongs_to_us(path)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return std::nullopt;
  std::string empty = header_of(key, "");
  if (bytes.size() < empty.size()) return std::nullopt;
  // The header's length varies with the object's size only in digits: find its end by the key.
  size_t end = bytes.find("\n" + key + "\n");
  if (end == std::string::npos) return std::nullopt;
  std::string object = bytes.substr(end + key.size() + 2);
  if (bytes.substr(0, end + key.size() + 2) != header_of(key, object)) return std::nullopt;
  return object;
}

void store_object(const std::string& key, const std::string& object) {
  if (settings().cache_dir.empty()) return;
  static std::atomic<uint64_t> serial{0};
  std::error_code ignored;
  std::filesystem::create_directories(settings().cache_dir, ignored);
  ::chmod(settings().cache_dir.c_str(), 0700);
  std::filesystem::path path = path_of(key);
  std::string temporary = fmt::format("{}.{}.{}", path.string(), ::getpid(), serial++);
  int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;
  bool written = write_all(file, header_of(key, object)) && write_all(file, object);
  written = ::close(file) == 0 && written;
  if (!written || ::rename(temporary.c_str(), path.c_str()) != 0) ::unlink(temporary.c_str());
}

}  // namespace weft::jit
