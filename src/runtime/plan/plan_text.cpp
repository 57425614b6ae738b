#include "runtime/plan/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <type_traits>

#include "base/error.h"

namespace weft::runtime {
namespace {

template <typename T>
concept HasFields = requires { T::fields(); };

/// Converts to the type of any member.
struct Anything {
  template <typename T>
  operator T() const;
};

template <typename T, size_t... I>
constexpr bool has_members(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), Anything{})...}; };
}

/// Whether fields() names as many members as the struct has: one that it leaves out would be lost in the text.
template <HasFields T>
constexpr bool names_all_members() {
  constexpr size_t kNamed = std::tuple_size_v<decltype(T::fields())>;
  return has_members<T>(std::make_index_sequence<kNamed>()) && !has_members<T>(std::make_index_sequence<kNamed + 1>());
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

constexpr std::array kStorages{"input", "output", "arena", "step"};
constexpr std::array kKinds{"rows", "scan", "call", "loop", "cond", "while"};

// ---- writing

class Writer {
 public:
  std::string take() { return std::move(text_); }

  void write(const Plan& plan) {
    static_assert(names_all_members<Plan>(), "fields() leaves out a member");
    line("symbols", plan.symbols);
    for (const DerivedSize& derived : plan.derived) line("derived", derived);
    for (const SizeCheck& check : plan.checks) line("check", check);
    line("dims", plan.dims);
    line("stage_count", plan.stage_count);
    line("work", plan.work);
    for (const BufferPlan& buffer : plan.buffers) line("buffer", buffer);
    for (const StagePlan& stage : plan.stages) line("stage", stage);
  }

 private:
  template <typename T>
  void line(const char* name, const T& value) {
    text_ += name;
    text_ += ' ';
    write(value);
    text_ += '\n';
  }

  void write(int64_t value) { text_ += fmt::format("{}", value); }
  void write(bool value) { text_ += value ? "true" : "false"; }
  void write(Storage value) { text_ += kStorages[static_cast<size_t>(value)]; }
  void write(StagePlan::Kind value) { text_ += kKinds[static_cast<size_t>(value)]; }
  void write(DType value) { text_ += name_of(value); }
  void write(const std::string& value) {
    text_ += '"';
    for (char c : value) {
      if (c == '"' || c == '\\') text_ += '\\';
      text_ += c;
    }
    text_ += '"';
  }
  void write(const DimExpr& value) {
    text_ += fmt::format("{}", value.factor);
    for (int64_t symbol : value.symbols) text_ += fmt::format("*s{}", symbol);
  }
  template <typename T>
  void write(const std::vector<T>& values) {
    text_ += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) text_ += ", ";
      write(values[i]);
    }
    text_ += ']';
  }
  void write(const KernelCall& call) {
    std::visit(
        [&]<typename Call>(const Call& kind) {
          text_ += Call::kName;
          text_ += ' ';
          write(kind);
        },
        call);
  }
  template <HasFields T>
  void write(const T& value) {
    static_assert(names_all_members<T>(), "fields() leaves out a member");
    const T plain{};
    bool is_first = true;
    text_ += '{';
    auto field = [&](const auto& of) {
      if (value.*of.member == plain.*of.member) return;
      if (!is_first) text_ += ", ";
      is_first = false;
      text_ += of.name;
      text_ += ": ";
      write(value.*of.member);
    };
    std::apply([&](const auto&... each) { (field(each), ...); }, T::fields());
    text_ += '}';
  }

  std::string text_;
};

// ---- reading

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Plan read() {
    Plan plan;
    for (skip(); at_ < text_.size(); skip()) {
      const std::string name = word();
      if (name == "symbols")
        read(plan.symbols);
      else if (name == "derived")
        read(plan.derived.emplace_back());
      else if (name == "check")
        read(plan.checks.emplace_back());
      else if (name == "dims")
        read(plan.dims);
      else if (name == "stage_count")
        read(plan.stage_count);
      else if (name == "work")
        read(plan.work);
      else if (name == "buffer")
        read(plan.buffers.emplace_back());
      else if (name == "stage")
        read(plan.stages.emplace_back());
      else
        fail(fmt::format("'{}' is no part of a plan", name));
    }
    return plan;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n') + 1;
    throw Error(fmt::format("line {} of a plan: {}", line, what));
  }

  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("there should be a '{}'", c));
  }
  static bool is_of_word(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }
  std::string word() {
    skip();
    const size_t first = at_;
    while (at_ < text_.size() && is_of_word(text_[at_])) ++at_;
    if (at_ == first) fail("there should be a name");
    return std::string(text_.substr(first, at_ - first));
  }

  void read(int64_t& value) {
    skip();
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail("there should be a number of 64 bits");
    at_ = static_cast<size_t>(end - text_.data());
  }
  void read(bool& value) {
    const std::string name = word();
    if (name != "true" && name != "false") fail(fmt::format("'{}' should be true or false", name));
    value = name == "true";
  }
  template <typename Enum, size_t N>
  void read_name(Enum& value, const std::array<const char*, N>& names) {
    const std::string name = word();
    for (size_t i = 0; i < N; ++i)
      if (name == names[i]) {
        value = static_cast<Enum>(i);
        return;
      }
    fail(fmt::format("'{}' is not one of {}", name, fmt::join(names, ", ")));
  }
  void read(Storage& value) { read_name(value, kStorages); }
  void read(StagePlan::Kind& value) { read_name(value, kKinds); }
  void read(DType& value) {
    const std::string name = word();
    auto dtype = dtype_named(name);
    if (!dtype) fail(fmt::format("'{}' is no dtype", name));
    value = *dtype;
  }
  void read(std::string& value) {
    expect('"');
    for (value.clear(); at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      value += text_[at_];
    }
    expect('"');
  }
  void read(DimExpr& value) {
    read(value.factor);
    for (value.symbols.clear(); take('*');) {
      expect('s');
      read(value.symbols.emplace_back());
    }
  }
  template <typename T>
  void read(std::vector<T>& values) {
    expect('[');
    values.clear();
    if (take(']')) return;
    do {
      read(values.emplace_back());
    } while (take(','));
    expect(']');
  }
  void read(KernelCall& call) {
    const std::string name = word();
    if (!read_call<0>(name, call)) fail(fmt::format("'{}' is no kernel", name));
  }
  template <size_t I>
  bool read_call(const std::string& name, KernelCall& call) {
    if constexpr (I < std::variant_size_v<KernelCall>) {
      if (name != std::variant_alternative_t<I, KernelCall>::kName) return read_call<I + 1>(name, call);
      read(call.emplace<I>());
      return true;
    } else {
      return false;
    }
  }
  template <HasFields T>
  void read(T& value) {
    constexpr int kDeepest = 200;
    if (++depth_ > kDeepest) fail(fmt::format("stages are nested more than {} deep", kDeepest));
    expect('{');
    if (!take('}')) {
      do {
        read_field(value);
      } while (take(','));
      expect('}');
    }
    --depth_;
  }
  template <typename T>
  void read_field(T& value) {
    const std::string name = word();
    expect(':');
    bool found = false;
    auto field = [&](const auto& of) {
      if (found || name != of.name) return;
      found = true;
      read(value.*of.member);
    };
    std::apply([&](const auto&... each) { (field(each), ...); }, T::fields());
    if (!found) fail(fmt::format("there is no field '{}'", name));
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string write_plan(const Plan& plan) {
  Writer writer;
  writer.write(plan);
  return writer.take();
}

Plan read_plan(std::string_view text) { return Reader(text).read(); }

}  // namespace weft::runtime
