#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/error.h"

namespace weft::testing {

/// The text of tests/golden/programs/<name>.weft.
inline std::string program_text(const std::string& name) {
  std::ifstream stream(std::string(WEFT_PROGRAMS) + "/" + name + ".weft");
  EXPECT_TRUE(stream.good()) << name;
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The text with `to` in the place of every `from`.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// The message of the user's error that `action` throws, or "no error".
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace weft::testing
