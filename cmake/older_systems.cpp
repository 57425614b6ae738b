// What glibc got after 2.28 and libstdc++ after GCC 8's, in terms of what they had. The linker puts these in the place
// of what is called (--wrap in older_systems.cmake). On x86-64, stat and stat64 are one structure.

#include <malloc.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <cstdlib>
#include <new>

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): the names are glibc's and the linker's.
namespace {
/// The version of the structures that the functions of old glibcs are told.
constexpr int kStatVersion = 1;
constexpr int kNodeVersion = 0;
}  // namespace

extern "C" {

int __xstat(int version, const char* path, struct stat* found);
int __lxstat(int version, const char* path, struct stat* found);
int __fxstat(int version, int file, struct stat* found);
int __fxstatat(int version, int folder, const char* path, struct stat* found, int flags);
int __xmknod(int version, const char* path, mode_t mode, dev_t* device);

/// Of std::exception_ptr: the copy constructor and the destructor, which were functions before they were inline.
void copy_exception(void* to, const void* from) asm("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void destroy_exception(void* pointer) asm("_ZNSt15__exception_ptr13exception_ptrD1Ev");

/// One reference more: a copy that nobody destroys.
void __wrap__ZNSt15__exception_ptr13exception_ptr9_M_addrefEv(void* pointer) {
  void* copy = nullptr;
  copy_exception(&copy, pointer);
}
/// One reference less, after which the pointer is null.
void __wrap__ZNSt15__exception_ptr13exception_ptr10_M_releaseEv(void** pointer) {
  destroy_exception(pointer);
  *pointer = nullptr;
}
void __wrap__ZSt28__throw_bad_array_new_lengthv() { throw std::bad_array_new_length(); }

/// glibc 2.32: whether the process has had one thread only, where reference counts need no atomic instruction. Never.
char __libc_single_threaded = 0;

int __wrap_stat(const char* path, struct stat* found) { return __xstat(kStatVersion, path, found); }
int __wrap_stat64(const char* path, struct stat* found) { return __xstat(kStatVersion, path, found); }
int __wrap_lstat(const char* path, struct stat* found) { return __lxstat(kStatVersion, path, found); }
int __wrap_lstat64(const char* path, struct stat* found) { return __lxstat(kStatVersion, path, found); }
int __wrap_fstat(int file, struct stat* found) { return __fxstat(kStatVersion, file, found); }
int __wrap_fstat64(int file, struct stat* found) { return __fxstat(kStatVersion, file, found); }
int __wrap_fstatat(int folder, const char* path, struct stat* found, int flags) {
  return __fxstatat(kStatVersion, folder, path, found, flags);
}
int __wrap_mknod(const char* path, mode_t mode, dev_t device) { return __xmknod(kNodeVersion, path, mode, &device); }

/// A random number from the kernel. There is no answer without one, as in glibc.
uint32_t __wrap_arc4random() {
  uint32_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) std::abort();
  return number;
}

/// glibc's older figures, which wrap around at 4 GiB: LLVM prints them, nothing depends on them.
struct mallinfo2 __wrap_mallinfo2() {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
  struct mallinfo2 wide = {};
  wide.arena = static_cast<unsigned>(old.arena);
  wide.hblkhd = static_cast<unsigned>(old.hblkhd);
  wide.uordblks = static_cast<unsigned>(old.uordblks);
  wide.fordblks = static_cast<unsigned>(old.fordblks);
  return wide;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
