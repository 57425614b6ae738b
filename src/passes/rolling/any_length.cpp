#include "passes/rolling/any_length.h"

#include <algorithm>
#include <string_view>

#include "ir/verifier.h"
#include "passes/rolling/likeness.h"
#include "passes/rolling/symbolic_lengths.h"

namespace weft::passes {
namespace {

using ir::Attr;
using ir::Block;
using ir::Dim;
using ir::Op;
using ir::Program;
using ir::ValueId;

/// Attributes that are sizes or places along a dim.
constexpr std::string_view kSizes[] = {"length", "start", "limit", "low", "high", "size"};

std::optional<Dim> as_size(const Attr& attr) {
  if (const auto* number = std::get_if<int64_t>(&attr)) return Dim(*number);
  if (const auto* dim = std::get_if<Dim>(&attr)) return *dim;
  return std::nullopt;
}

/// Walks both programs at once and writes what differs into the first.
class Join {
 public:
  Join(Program& program, int64_t length, const Program& other, int64_t other_length)
      : program_(program),
        other_(other),
        length_(length),
        more_(other_length - length),
        symbol_(fresh_symbol(program)),
        known_(other.values.size(), ir::kNoValue) {}

  bool run() { return more_ != 0 && join(program_.body, other_.body); }

 private:
  std::optional<Dim> join(const Dim& one, const Dim& two) const {
    if (one == two) return one;
    if (!one.is_constant() || !two.is_constant()) return std::nullopt;
    const int64_t difference = two.constant() - one.constant();
    if (difference % more_ != 0) return std::nullopt;
    const int64_t times = difference / more_;
    return Dim(times) * symbol_ + Dim(one.constant() - times * length_);
  }

  bool define(const std::vector<ValueId>& ones, const std::vector<ValueId>& twos) {
    if (ones.size() != twos.size()) return false;
    for (size_t i = 0; i < ones.size(); ++i) {
      ir::Type& type = program_.values[ones[i]].type;
      const ir::Type& other = other_.type(twos[i]);
      if (type.dtype != other.dtype || type.shape.size() != other.shape.size()) return false;
      for (size_t dim = 0; dim < type.shape.size(); ++dim) {
        const std::optional<Dim> size = join(type.shape[dim], other.shape[dim]);
        if (!size) return false;
        type.shape[dim] = *size;
      }
      known_[twos[i]] = ones[i];
    }
    return true;
  }

  bool are_same(const std::vector<ValueId>& ones, const std::vector<ValueId>& twos) const {
    return std::ranges::equal(ones, twos, {}, {}, [this](ValueId two) { return known_[two]; });
  }

  bool join(ir::Attrs& ones, const ir::Attrs& twos) const {
    if (ones.size() != twos.size()) return false;
    for (auto& [name, one] : ones) {
      const auto two = twos.find(name);
      if (two == twos.end()) return false;
      if (same(one, two->second)) continue;
      const std::optional<Dim> a = as_size(one), b = as_size(two->second);
      if (!a || !b || std::ranges::find(kSizes, name) == std::end(kSizes)) return false;
      const std::optional<Dim> size = join(*a, *b);
      if (!size) return false;
      one = std::holds_alternative<Dim>(one) ? Attr(*size) : ir::as_attr(*size);
    }
    return true;
  }

  bool join(Op& one, const Op& two) {
    if (one.code != two.code || !are_same(one.operands, two.operands) || one.regions.size() != two.regions.size())
      return false;
    if (!join(one.attrs, two.attrs)) return false;
    for (size_t i = 0; i < one.regions.size(); ++i)
      if (!join(one.regions[i], two.regions[i])) return false;
    return define(one.results, two.results);
  }

  bool join(Block& one, const Block& two) {
    if (!define(one.args, two.args) || one.ops.size() != two.ops.size()) return false;
    for (size_t i = 0; i < one.ops.size(); ++i)
      if (!join(one.ops[i], two.ops[i])) return false;
    return are_same(one.results, two.results);
  }

  Program& program_;
  const Program& other_;
  int64_t length_, more_;
  Dim symbol_;
  std::vector<ValueId> known_;  ///< by value of the other program
};

}  // namespace

std::optional<Program> any_length(const Program& program, int64_t length, const Program& other, int64_t other_length) {
  Program joined = program;
  if (!Join(joined, length, other, other_length).run()) return std::nullopt;
  try {
    ir::verify(joined);
  } catch (const Error&) {
    return std::nullopt;
  }
  return joined;
}

}  // namespace weft::passes
