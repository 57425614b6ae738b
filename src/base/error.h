#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace weft {

/// The user's error: says what was wrong, where, and what would be right. Surfaces as RuntimeError in Python.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A bug of Weft's own: says so and asks for the program's text.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

template <typename... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void internal_error(fmt::format_string<Args...> format, Args&&... args) {
  throw InternalError("weft internal error (a bug; please report it with the program's text): " +
                      fmt::format(format, std::forward<Args>(args)...));
}

/// Throws the user's error unless `condition`.
template <typename... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) user_error(format, std::forward<Args>(args)...);
}

/// Throws an internal error unless `condition`.
template <typename... Args>
void internal_check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) internal_error(format, std::forward<Args>(args)...);
}

}  // namespace weft
