#include "ir/text/lexer.h"

#include <algorithm>

namespace weft::ir {
namespace {

// Not <cctype>: its answers depend on the locale.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
size_t name_length(std::string_view text) {
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_name_char) - text.begin());
}

}  // namespace

bool is_name_char(char c) { return is_digit(c) || is_letter(c) || c == '.'; }

void error_at(std::string_view source, size_t offset, const std::string& message) {
  std::string_view before = source.substr(0, offset);
  auto line = 1 + std::count(before.begin(), before.end(), '\n');
  size_t start = before.rfind('\n');
  size_t column = start == std::string_view::npos ? offset + 1 : offset - start;
  user_error("line {}, column {}: {}", line, column, message);
}

Token Lexer::take(TokenKind kind, size_t length) {
  Token token{kind, source_.substr(at_, length), at_};
  at_ += length;
  return token;
}

void Lexer::skip_blanks() {
  while (at_ < source_.size()) {
    char c = source_[at_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++at_;
    } else if (source_.substr(at_, 2) == "//") {
      at_ = std::min(source_.find('\n', at_), source_.size());
    } else {
      return;
    }
  }
}

Token Lexer::next() {
  skip_blanks();
  if (at_ >= source_.size()) return take(TokenKind::kEnd, 0);
  char c = source_[at_];
  std::string_view rest = source_.substr(at_);
  if (is_letter(c)) return take(TokenKind::kIdent, name_length(rest));
  if (is_digit(c) || c == '-') return number();
  if (c == '"') return string();
  if (c == '%' || c == '@') {
    size_t length = name_length(rest.substr(1));
    if (length == 0) error_at(source_, at_, fmt::format("expected a name after '{}'", c));
    return take(c == '%' ? TokenKind::kValue : TokenKind::kGlobal, length + 1);
  }
  if (std::string_view("(){}[],:=*+").find(c) != std::string_view::npos) return take(TokenKind::kPunct, 1);
  if (c > ' ' && c <= '~') error_at(source_, at_, fmt::format("unexpected character '{}'", c));
  error_at(source_, at_, fmt::format("unexpected byte 0x{:02x}", static_cast<unsigned char>(c)));
}

Token Lexer::next_in_size() {
  const std::string_view rest = source_.substr(at_);
  if (rest.size() > 2 && rest.starts_with("//") && is_digit(rest[2])) return take(TokenKind::kPunct, 2);
  skip_blanks();
  if (source_.substr(at_).starts_with('-')) return take(TokenKind::kPunct, 1);
  return next();
}

Token Lexer::number() {
  std::string_view rest = source_.substr(at_);
  if (rest.substr(0, 4) == "-inf") return take(TokenKind::kFloat, 4);
  size_t i = rest[0] == '-' ? 1 : 0;
  auto digits = [&] {
    size_t before = i;
    while (i < rest.size() && is_digit(rest[i])) ++i;
    if (i == before) error_at(source_, at_ + i, "expected a digit");
  };
  TokenKind kind = TokenKind::kInteger;
  digits();
  if (i < rest.size() && rest[i] == '.') {
    kind = TokenKind::kFloat;
    ++i;
    digits();
  }
  if (i < rest.size() && (rest[i] == 'e' || rest[i] == 'E')) {
    kind = TokenKind::kFloat;
    ++i;
    if (i < rest.size() && (rest[i] == '+' || rest[i] == '-')) ++i;
    digits();
  }
  if (i < rest.size() && is_name_char(rest[i])) error_at(source_, at_ + i, "expected a blank after a number");
  return take(kind, i);
}

Token Lexer::string() {
  for (size_t i = at_ + 1; i < source_.size() && source_[i] != '\n'; ++i) {
    if (source_[i] == '\\')
      ++i;
    else if (source_[i] == '"')
      return take(TokenKind::kString, i + 1 - at_);
  }
  error_at(source_, at_, "this string does not end on its line");
}

}  // namespace weft::ir
