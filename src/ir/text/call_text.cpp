#include "ir/text/call_text.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace weft::ir {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// The parts between separators that stand in no brackets and no quotes.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  bool is_quoted = false;
  size_t begin = 0;
  if (trimmed(text).empty()) return parts;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '\'' && (i == 0 || text[i - 1] != '\\')) is_quoted = !is_quoted;
    if (i < text.size() && (is_quoted || (text[i] != separator || depth > 0))) {
      depth += text[i] == '[' || text[i] == '(';
      depth -= text[i] == ']' || text[i] == ')';
      continue;
    }
    parts.emplace_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return parts;
}

bool begins_and_ends(std::string_view text, std::string_view begin, char end) {
  return text.size() > begin.size() && text.starts_with(begin) && text.back() == end;
}

}  // namespace

CallText::CallText(std::string_view reader, std::string_view text, std::vector<Sizes> operands)
    : reader_(reader), text_(text), operands_(std::move(operands)) {
  const size_t open = text_.find('(');
  if (open == std::string::npos || text_.back() != ')') refuse("the text is no call");
  arguments_ = split(std::string_view(text_).substr(open + 1, text_.size() - open - 2), ',');
}

void CallText::refuse(std::string_view why) const {
  user_error("{}: the call of PyTorch {} has no lowering: {}", reader_, text_, why);
}

std::string_view CallText::argument(size_t i) const {
  if (i >= arguments_.size()) refuse("it has too few arguments");
  return arguments_[i];
}

std::string_view CallText::word(size_t i) const {
  const std::string_view text = argument(i);
  if (text.size() < 2 || text.front() != '\'' || text.back() != '\'') refuse("an argument is no text");
  return text.substr(1, text.size() - 2);
}

bool CallText::flag(size_t i) const {
  if (argument(i) != "true" && argument(i) != "false") refuse("an argument is no bool");
  return argument(i) == "true";
}

int64_t CallText::integer(size_t i) const { return number_of(argument(i)); }

bool CallText::has_number(size_t i, double number) const {
  const std::string text(argument(i));
  char* end = nullptr;
  const double found = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && found == number;
}

CallText::Sizes CallText::integers(size_t i) const {
  const std::string_view text = argument(i);
  if (!begins_and_ends(text, "[", ']')) refuse("an argument is no list");
  Sizes numbers;
  for (const std::string& part : split(text.substr(1, text.size() - 2), ',')) numbers.push_back(number_of(part));
  return numbers;
}

std::vector<bool> CallText::flags(size_t i) const {
  const std::string_view text = argument(i);
  if (!begins_and_ends(text, "[", ']')) refuse("an argument is no list");
  std::vector<bool> flags;
  for (const std::string& part : split(text.substr(1, text.size() - 2), ',')) flags.push_back(part == "true");
  return flags;
}

std::optional<size_t> CallText::operand(size_t i) const {
  const std::string_view text = argument(i);
  if (text == "None") return std::nullopt;
  size_t number = 0;
  const char* end = text.data() + text.size();
  if (!text.starts_with('%') || std::from_chars(text.data() + 1, end, number).ptr != end || number >= operands_.size())
    refuse("an argument is no tensor");
  return number;
}

int64_t CallText::number_of(std::string_view text) const {
  int64_t product = 1;
  for (const std::string& factor : split(text, '*')) {
    int64_t number = 0;
    const char* end = factor.data() + factor.size();
    if (begins_and_ends(factor, "size(", ')')) {
      const std::vector<std::string> of = split(std::string_view(factor).substr(5, factor.size() - 6), ',');
      if (of.size() != 2) refuse("a size names no dim of an operand");
      const int64_t operand = number_of(of[0]), dim = number_of(of[1]);
      if (operand < 0 || operand >= static_cast<int64_t>(operands_.size())) refuse("a size names no dim of an operand");
      const Sizes& sizes = operands_[static_cast<size_t>(operand)];
      if (dim < 0 || dim >= static_cast<int64_t>(sizes.size())) refuse("a size names no dim of an operand");
      number = sizes[static_cast<size_t>(dim)];
    } else if (factor.empty() || std::from_chars(factor.data(), end, number).ptr != end) {
      refuse("an argument is no integer");
    }
    product *= number;
  }
  return product;
}

}  // namespace weft::ir
