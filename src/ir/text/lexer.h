#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace weft::ir {

enum class TokenKind : uint8_t { kIdent, kValue, kGlobal, kInteger, kFloat, kString, kPunct, kEnd };

/// A token: a view into the program's text.
struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  ///< as written: with `%`, `@` and quotes
  size_t offset = 0;
};

/// ASCII letters, digits, `_` and `.`, whatever the process's locale takes for a letter.
bool is_name_char(char c);

/// Throws the user's error "line 3, column 14: ..." for an offset of the text. Columns count bytes.
[[noreturn]] void error_at(std::string_view source, size_t offset, const std::string& message);

/// Splits a program's text into tokens, skipping blanks and `//` comments. The last token is kEnd.
class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}
  Token next();
  /// The next token behind a part of a size, where `+`, `-` and `//` are operators: `T-1`, `(T+1)//2`. A `//` is a
  /// division if a number follows at once, else it begins a comment.
  Token next_in_size();

 private:
  void skip_blanks();
  Token take(TokenKind kind, size_t length);
  Token number();
  Token string();

  std::string_view source_;
  size_t at_ = 0;
};

}  // namespace weft::ir
