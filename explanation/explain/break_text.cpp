#include "explain/break_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace weft::explain {
namespace {

constexpr std::string_view kReason = "Graph Break Reason: ";
constexpr std::string_view kUserPath = "User code traceback:\n";
constexpr std::string_view kSkippedPath = "The graph break occurred in the following user code:\n";
constexpr std::string_view kSecond = "*** While handling this graph break, another graph break occurred: ***";

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

int number_at(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// `  File "name", line 3, in function`, and the code in the line after it.
std::vector<Frame> parse_path(std::string_view text) {
  constexpr std::string_view kFile = "File \"";
  constexpr std::string_view kLine = "\", line ";
  constexpr std::string_view kIn = ", in ";
  std::vector<Frame> path;
  bool wants_code = false;
  for (const std::string_view raw : lines_of(text)) {
    const std::string_view line = trim(raw);
    const size_t number = line.find(kLine);
    if (line.starts_with(kFile) && number != std::string_view::npos) {
      Frame frame;
      frame.file = line.substr(kFile.size(), number - kFile.size());
      frame.line = number_at(line.substr(number + kLine.size()));
      if (const size_t in = line.find(kIn, number); in != std::string_view::npos) {
        frame.function = line.substr(in + kIn.size());
      }
      path.push_back(std::move(frame));
      wants_code = true;
    } else if (line.empty() || raw.front() != ' ') {
      break;
    } else if (wants_code) {
      path.back().code = line;
      wants_code = false;
    }
  }
  return path;
}

/// Parses explanation, hints and context, each of which may continue on lines that are indented further.
void parse_details(std::string_view message, BreakText& into) {
  std::string* open = nullptr;
  std::string_view before;
  for (const std::string_view raw : lines_of(message)) {
    const std::string_view line = trim(raw);
    if (line.starts_with("Explanation: ")) {
      if (into.type.empty()) into.type = before;
      into.explanation = line.substr(13);
      open = &into.explanation;
    } else if (line.starts_with("Hint: ")) {
      open = &into.hints.emplace_back(line.substr(6));
    } else if (line.starts_with("Developer debug context: ")) {
      into.context = line.substr(25);
      open = &into.context;
    } else if (line.empty()) {
      open = nullptr;
    } else if (open) {
      *open += " ";
      *open += line;
    } else if (!line.starts_with("Higher Order Operator: ")) {
      before = line;
    }
  }
}

/// The break's code, such as "GB0007", from the address of its web page.
std::string code_in(std::string_view message) {
  constexpr std::string_view kPage = "/gb/gb";
  const size_t begin = message.find(kPage);
  if (begin == std::string_view::npos) return {};
  std::string_view digits = message.substr(begin + kPage.size());
  digits = digits.substr(0, std::min(digits.find_first_not_of("0123456789"), digits.size()));
  return "GB" + std::string(digits);
}

std::string_view between(std::string_view text, size_t begin, std::initializer_list<std::string_view> ends) {
  size_t end = text.size();
  for (const std::string_view mark : ends) end = std::min(end, text.find(mark, begin));
  return text.substr(begin, end - begin);
}

/// The kind of a break without explanation: the first line after the one that says what Dynamo was doing.
std::string_view first_line(std::string_view text) {
  for (const std::string_view raw : lines_of(text)) {
    const std::string_view line = trim(raw);
    if (!line.empty() && !line.ends_with(':')) return line;
  }
  return trim(text);
}

}  // namespace

BreakText parse_break(std::string_view payload) {
  BreakText found;
  for (const std::string_view mark : {kUserPath, kSkippedPath}) {
    if (const size_t at = payload.find(mark); at != std::string_view::npos) {
      found.path = parse_path(payload.substr(at + mark.size()));
    }
  }
  // Without a reason in front it is in the traceback behind: the exception's text.
  constexpr std::string_view kRaised = "torch._dynamo.exc.";
  std::string_view message;
  if (const size_t at = payload.find(kReason); at != std::string_view::npos) {
    message = between(payload, at + kReason.size(), {"\nStack variable source attribution:", "\nUser code traceback:"});
  } else if (const size_t raised = payload.rfind(kRaised); raised != std::string_view::npos) {
    message = payload.substr(std::min(payload.find(": ", raised) + 2, payload.size()));
    found.skipped = true;
  } else {
    message = payload.substr(0, std::min(payload.find('\n'), payload.size()));
  }
  if (message.starts_with("Failed to handle graph break gracefully.")) found.skipped = true;
  const size_t second = message.find(kSecond);
  const std::string_view first = message.substr(0, std::min(second, message.size()));
  parse_details(first, found);
  found.code = code_in(first);
  if (found.type.empty()) found.type = first_line(first);
  if (second != std::string_view::npos) {
    BreakText other;
    parse_details(message.substr(second + kSecond.size()), other);
    found.skipped_by = other.type;
    found.skipped = true;
  }
  return found;
}

}  // namespace weft::explain
