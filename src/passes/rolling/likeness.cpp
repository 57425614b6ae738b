#include "passes/rolling/likeness.h"

#include <bit>
#include <unordered_map>

#include "passes/rewrite.h"

namespace weft::passes {

using ir::Attr;
using ir::Attrs;
using ir::Block;
using ir::Dim;
using ir::Op;
using ir::Program;
using ir::Type;
using ir::ValueId;

void mix(size_t& hash, size_t value) {  // splitmix64
  hash += value + 0x9e3779b97f4a7c15ull;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ull;
  hash ^= hash >> 27;
}

size_t hash_of(const Attr& attr) {
  size_t hash = attr.index();
  std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          for (int64_t each : value) mix(hash, std::hash<int64_t>{}(each));
        } else if constexpr (std::is_same_v<T, Dim>) {
          mix(hash, ir::hash_of(value));
        } else if constexpr (std::is_same_v<T, double>) {
          mix(hash, std::hash<uint64_t>{}(std::bit_cast<uint64_t>(value)));
        } else {
          mix(hash, std::hash<T>{}(value));
        }
      },
      attr);
  return hash;
}

bool same(const Attr& a, const Attr& b) {
  const double* x = std::get_if<double>(&a);
  const double* y = std::get_if<double>(&b);
  if (x && y) return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y);
  return a == b;
}

bool same(const Attrs& a, const Attrs& b) {
  if (a.size() != b.size()) return false;
  for (auto x = a.begin(), y = b.begin(); x != a.end(); ++x, ++y)
    if (x->first != y->first || !same(x->second, y->second)) return false;
  return true;
}

std::vector<ValueId> reads(const Op& op) {
  std::vector<ValueId> values = op.operands;
  if (op.regions.empty()) return values;
  ValueSet inside;
  auto enter = [&](const auto& self, const Block& block) -> void {
    for (ValueId arg : block.args) inside.insert(arg);
    for (const Op& each : block.ops) {
      for (ValueId result : each.results) inside.insert(result);
      for (const Block& region : each.regions) self(self, region);
    }
  };
  for (const Block& region : op.regions) enter(enter, region);
  for (const Block& region : op.regions)
    for_each_use(region, [&](ValueId v) {
      if (!inside.contains(v)) values.push_back(v);
    });
  return values;
}

namespace {

void mix_type(size_t& hash, const Type& type) {
  mix(hash, static_cast<size_t>(type.dtype));
  for (const Dim& dim : type.shape) mix(hash, ir::hash_of(dim));
  mix(hash, type.shape.size());
}

void mix_form(size_t& hash, const Program& program, const Op& op) {
  mix(hash, static_cast<size_t>(op.code));
  for (ValueId v : op.operands) mix_type(hash, program.type(v));
  for (ValueId v : op.results) mix_type(hash, program.type(v));
  for (const auto& [name, attr] : op.attrs) mix(hash, hash_of(attr));
  for (const Block& region : op.regions) {
    for (const Op& each : region.ops) mix_form(hash, program, each);
    mix(hash, region.ops.size());
  }
}

/// Walks two ops side by side; values that they define correspond in order.
class FormComparison {
 public:
  explicit FormComparison(const Program& program) : program_(program) {}

  bool same_op(const Op& a, const Op& b, bool outermost) {
    if (a.code != b.code || !same(a.attrs, b.attrs)) return false;
    if (a.operands.size() != b.operands.size() || a.results.size() != b.results.size()) return false;
    if (a.regions.size() != b.regions.size()) return false;
    for (size_t i = 0; i < a.operands.size(); ++i)
      if (outermost ? !same_type(a.operands[i], b.operands[i]) : !same_use(a.operands[i], b.operands[i])) return false;
    for (size_t i = 0; i < a.regions.size(); ++i)
      if (!same_block(a.regions[i], b.regions[i])) return false;
    return same_definitions(a.results, b.results);
  }

 private:
  bool same_type(ValueId a, ValueId b) const { return a == b || program_.type(a) == program_.type(b); }

  bool same_use(ValueId a, ValueId b) const {
    auto it = to_b_.find(a);
    bool b_inside = in_b_.contains(b);
    if (it == to_b_.end() || !b_inside) return it == to_b_.end() && !b_inside && same_type(a, b);
    return it->second == b;
  }

  bool same_definitions(const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!same_type(a[i], b[i])) return false;
      to_b_[a[i]] = b[i];
      in_b_.insert(b[i]);
    }
    return true;
  }

  bool same_block(const Block& a, const Block& b) {
    if (a.ops.size() != b.ops.size() || a.results.size() != b.results.size()) return false;
    if (!same_definitions(a.args, b.args)) return false;
    for (size_t i = 0; i < a.ops.size(); ++i)
      if (!same_op(a.ops[i], b.ops[i], /*outermost=*/false)) return false;
    for (size_t i = 0; i < a.results.size(); ++i)
      if (!same_use(a.results[i], b.results[i])) return false;
    return true;
  }

  const Program& program_;
  std::unordered_map<ValueId, ValueId> to_b_;
  ValueSet in_b_;
};

}  // namespace

bool same_form(const Program& program, const Op& a, const Op& b) {
  return FormComparison(program).same_op(a, b, /*outermost=*/true);
}

size_t form_hash(const Program& program, const Op& op) {
  size_t hash = 0;
  mix_form(hash, program, op);
  return hash;
}

bool inserts_dim(const Program& program, ValueId shorter, ValueId longer, int64_t dim) {
  ir::Shape shape = program.type(longer).shape;
  if (shape[static_cast<size_t>(dim)] != Dim(1)) return false;
  shape.erase(shape.begin() + dim);
  return shape == program.type(shorter).shape;
}

}  // namespace weft::passes
