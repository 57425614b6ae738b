#include "ir/text/printer.h"

#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "ir/text/lexer.h"

namespace weft::ir {
namespace {

/// Letters, digits, `_` and `.`; everything else becomes `_`.
std::string sanitised(std::string name) {
  for (char& c : name)
    if (!is_name_char(c)) c = '_';
  return name;
}

bool is_number(std::string_view name) { return name.find_first_not_of("0123456789") == std::string_view::npos; }

/// The printed name of every value, given in order of definition.
class Names {
 public:
  Names(const Program& program, bool canonical) : names_(program.values.size()) {
    name_block(program, program.body, canonical);
  }

  std::string of(ValueId id) const {
    if (id >= names_.size() || names_[id].empty()) return fmt::format("%<undefined {}>", id);
    return "%" + names_[id];
  }

 private:
  void name_block(const Program& program, const Block& block, bool canonical) {
    for (ValueId arg : block.args) name_value(program, arg, canonical);
    for (const Op& op : block.ops) {
      for (ValueId result : op.results) name_value(program, result, canonical);
      for (const Block& region : op.regions) name_block(program, region, canonical);
    }
  }

  void name_value(const Program& program, ValueId id, bool canonical) {
    if (id >= names_.size() || !names_[id].empty()) return;
    std::string wish = canonical ? "" : sanitised(program.values[id].name);
    names_[id] = is_number(wish) ? std::to_string(next_number_++) : unused(wish);
  }

  std::string unused(const std::string& wish) {
    if (used_.insert(wish).second) return wish;
    for (int64_t& suffix = next_suffix_[wish];;) {
      std::string name = fmt::format("{}_{}", wish, ++suffix);
      if (used_.insert(name).second) return name;
    }
  }

  std::vector<std::string> names_;
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, int64_t> next_suffix_;
  int64_t next_number_ = 0;
};

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (c >= ' ' && c <= '~')
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out + "\"";
}

std::string attr_text(const Attr& attr) {
  struct Visitor {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return float_text(v); }
    std::string operator()(const std::vector<int64_t>& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(const Dim& v) const { return "dim(" + to_string(v) + ")"; }
  };
  return std::visit(Visitor{}, attr);
}

class Printer {
 public:
  using Note = std::function<std::string(const Op&)>;

  Printer(const Program& program, bool canonical, Note note = {})
      : program_(program), names_(program, canonical), note_(std::move(note)) {}

  std::string run() {
    std::string name = sanitised(program_.name);
    out_ = "program @" + (name.empty() ? "main" : name) + "(";
    for (size_t i = 0; i < program_.body.args.size(); ++i) {
      ValueId arg = program_.body.args[i];
      out_ += fmt::format("{}{}: {}", i ? ", " : "", names_.of(arg), type_text(arg));
    }
    out_ += ") {\n";
    for (const Op& op : program_.body.ops) print_op(op, 1);
    const std::string returned = results();
    out_ += returned.empty() ? "  return\n}\n" : "  return " + returned + "\n}\n";
    return std::move(out_);
  }

 private:
  std::string type_text(ValueId id) const {
    return id < program_.values.size() ? to_string(program_.type(id)) : "<no type>";
  }

  std::string list(const std::vector<ValueId>& ids, size_t first = 0, size_t last = ~size_t{0}) const {
    std::string text;
    for (size_t i = first; i < std::min(last, ids.size()); ++i) text += (text.empty() ? "" : ", ") + names_.of(ids[i]);
    return text;
  }

  /// `%a, %b in %x`.
  std::string results() const {
    std::string text;
    auto donation = program_.donations.begin();
    for (size_t i = 0; i < program_.body.results.size(); ++i) {
      text += (i ? ", " : "") + names_.of(program_.body.results[i]);
      if (donation == program_.donations.end() || donation->result != i) continue;
      const auto& inputs = program_.body.args;
      text += " in " + names_.of(donation->input < inputs.size() ? inputs[donation->input] : kNoValue);
      ++donation;
    }
    return text;
  }

  std::string types(const std::vector<ValueId>& ids) const {
    std::string text;
    for (ValueId id : ids) text += (text.empty() ? "" : ", ") + type_text(id);
    return text;
  }

  /// Scan's own attributes have their own syntax.
  static bool is_scan_word(std::string_view name) {
    return name == "carries" || name == "reverse" || name == "length" || name == "rows" || name == "packed";
  }

  /// ` {a = 1, b = true}`, or nothing.
  static std::string attrs_text(const Op& op) {
    std::string text;
    for (const auto& [name, value] : op.attrs) {
      if (op.code == OpCode::kScan && is_scan_word(name)) continue;
      text += (text.empty() ? "" : ", ") + name + " = " + attr_text(value);
    }
    return text.empty() ? "" : " {" + text + "}";
  }

  void print_op(const Op& op, int depth) {
    out_.append(static_cast<size_t>(depth) * 2, ' ');
    if (!op.results.empty()) out_ += list(op.results) + " = ";
    out_ += info(op.code).name;
    if (op.code == OpCode::kScan)
      print_scan(op, depth);
    else if (op.code == OpCode::kCond || op.code == OpCode::kWhile)
      print_control(op, depth);
    else
      out_ += (op.operands.empty() ? "" : " " + list(op.operands)) + attrs_text(op);
    if (!op.results.empty()) out_ += " : " + types(op.results);
    if (op.regions.empty()) out_ += note_of(op);
    out_ += '\n';
  }

  std::string note_of(const Op& op) const {
    const std::string note = note_ ? note_(op) : "";
    return note.empty() ? "" : "  // " + note;
  }

  /// `(%arg = %operand, ...)` for operands first..last-1.
  std::string pairs(const Op& op, const Block& region, size_t first, size_t last) const {
    std::string text = "(";
    for (size_t i = first; i < last; ++i) {
      std::string arg = i < region.args.size() ? names_.of(region.args[i]) : "%<missing>";
      text += fmt::format("{}{} = {}", i > first ? ", " : "", arg, names_.of(op.operands[i]));
    }
    return text + ")";
  }

  void print_scan(const Op& op, int depth) {
    const Block empty;
    const Block& region = op.regions.empty() ? empty : op.regions[0];
    bool ragged = op.has("rows") && !op.operands.empty();
    size_t operands = op.operands.size() - (ragged ? 1 : 0);
    auto carries = std::min(static_cast<size_t>(op.attr_or<int64_t>("carries", 0)), operands);
    out_ += op.attr_or("reverse", false) ? " reverse length " : " length ";
    out_ += to_string(op.attr_or("length", Dim(0)));
    if (ragged)
      out_ += fmt::format(" ragged({}, {}, {})", names_.of(op.operands.back()), to_string(op.attr_or("rows", Dim(0))),
                          to_string(op.attr_or("packed", Dim(0))));
    out_ += attrs_text(op);
    out_ += " carry" + pairs(op, region, 0, carries) + " xs" + pairs(op, region, carries, operands);
    print_region(region, depth,
                 " carry(" + list(region.results, 0, carries) + ") ys(" + list(region.results, carries) + ")",
                 note_of(op));
  }

  /// Prints ` { ops, yield...` and the closing brace.
  void print_region(const Block& region, int depth, const std::string& yielded, const std::string& note) {
    out_ += " {" + note + "\n";
    for (const Op& inner : region.ops) print_op(inner, depth + 1);
    out_.append(static_cast<size_t>(depth + 1) * 2, ' ');
    out_ += "yield" + yielded + "\n";
    out_.append(static_cast<size_t>(depth) * 2, ' ');
    out_ += "}";
  }

  /// `cond %p then {...} else {...}`, or `while carry(%h = %h0) {...} do(%k) {...}`.
  void print_control(const Op& op, int depth) {
    const Block empty;
    bool loop = op.code == OpCode::kWhile;
    for (size_t i = 0; i < 2; ++i) {
      const Block& region = i < op.regions.size() ? op.regions[i] : empty;
      if (i == 0)
        out_ += loop ? attrs_text(op) + " carry" + pairs(op, region, 0, op.operands.size())
                     : " " + list(op.operands) + attrs_text(op) + " then";
      else
        out_ += loop ? " do(" + list(region.args) + ")" : " else";
      print_region(region, depth, region.results.empty() ? "" : " " + list(region.results), i == 0 ? note_of(op) : "");
    }
  }

  const Program& program_;
  Names names_;
  Note note_;
  std::string out_;
};

}  // namespace

std::string print(const Program& program, bool canonical) { return Printer(program, canonical).run(); }

std::string print(const Program& program, const std::function<std::string(const Op&)>& note) {
  return Printer(program, false, note).run();
}

}  // namespace weft::ir
