#include "passes/simplification/cse.h"

#include <algorithm>
#include <ranges>
#include <unordered_map>

#include "passes/rewrite.h"
#include "passes/rolling/likeness.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Dim;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;

/// Whether an attribute matters for what the op computes. The derivative of an extern op does not.
bool counts(const Op& op, std::string_view attr) { return !ir::traits_of(op.code).calls_out || attr != "vjp"; }

struct Entry {
  Op op;
  int depth;  ///< of the region that holds it
};

class Cse {
 public:
  explicit Cse(Program& program) : program_(program) {}

  void run(Block& block) {
    ++depth_;
    std::vector<size_t> added;  // what this block has added to the table
    std::vector<Op> ops;
    for (Op& op : block.ops) {
      substitute_operands(op);
      if (op.code == OpCode::kScan) {
        run_scan(op);
        ops.push_back(std::move(op));
        continue;
      }
      if (!op.regions.empty()) {
        for (Block& region : op.regions) run(region);
        ops.push_back(std::move(op));
        continue;
      }
      if (!is_repeatable(op)) {
        ops.push_back(std::move(op));
        continue;
      }
      size_t hash = hash_of(op);
      if (const Op* first = find(hash, op)) {
        for (size_t i = 0; i < op.results.size(); ++i) replaced_.set(op.results[i], first->results[i]);
        continue;
      }
      table_[hash].push_back({op, depth_});
      added.push_back(hash);
      ops.push_back(std::move(op));
    }
    block.ops = std::move(ops);
    for (ValueId& v : block.results) v = replaced_(v);
    for (size_t i = added.size(); i-- > 0;) table_[added[i]].pop_back();
    --depth_;
  }

 private:
  void substitute_operands(Op& op) {
    for (ValueId& v : op.operands) v = replaced_(v);
  }

  size_t hash_of(const Op& op) const {
    auto hash = static_cast<size_t>(op.code);
    for (ValueId v : op.operands) mix(hash, v);
    for (const auto& [name, attr] : op.attrs)
      if (counts(op, name)) mix(hash, passes::hash_of(attr));
    for (const Dim& dim : program_.type(op.results[0]).shape) mix(hash, ir::hash_of(dim));
    return hash;
  }

  bool equal(const Op& a, const Op& b) const {
    if (a.code != b.code || a.operands != b.operands) return false;
    auto kept = std::views::filter([&](const auto& attr) { return counts(a, attr.first); });
    if (!std::ranges::equal(a.attrs | kept, b.attrs | kept, [](const auto& x, const auto& y) {
          return x.first == y.first && same(x.second, y.second);
        }))
      return false;
    return std::ranges::equal(
        a.results, b.results, {}, [&](ValueId v) { return program_.type(v); },
        [&](ValueId v) { return program_.type(v); });
  }

  /// An equal op that is visible here; null if there is none. Constants and broadcasts are free beside their readers,
  /// so a region keeps its own.
  const Op* find(size_t hash, const Op& op) const {
    auto it = table_.find(hash);
    if (it == table_.end()) return nullptr;
    bool is_free = ir::traits_of(op.code).cost == ir::Cost::kNothing;
    for (const Entry& entry : it->second)
      if ((!is_free || entry.depth == depth_) && !other_rows(entry) && equal(entry.op, op)) return &entry.op;
    return nullptr;
  }

  /// Whether the op works on rows and stands outside the ragged scan that is being visited. There the op works on all
  /// rows, so its result may differ from the result of an equal op on a step's rows, as a sum over rows does.
  bool other_rows(const Entry& entry) const {
    auto mentions = [&](const ir::Ragged& ragged) {
      auto on_rows = [&](ValueId v) { return mentions_rows(program_.type(v), ragged); };
      return std::ranges::any_of(entry.op.operands, on_rows) || std::ranges::any_of(entry.op.results, on_rows);
    };
    return std::ranges::any_of(ragged_,
                               [&](const auto& scan) { return entry.depth <= scan.first && mentions(scan.second); });
  }

  void run_scan(Op& op) {
    ScanParts parts(std::move(op));
    std::unordered_map<ValueId, ValueId> taken;
    std::erase_if(parts.xs, [&](const auto& x) {
      auto [it, is_new] = taken.emplace(x.stack, x.arg);
      if (!is_new) replaced_.set(x.arg, it->second);
      return !is_new;
    });
    std::optional<ir::Ragged> ragged = parts.ragged;
    op = std::move(parts).build();
    if (ragged) ragged_.emplace_back(depth_, *ragged);
    run(op.regions[0]);
    if (ragged) ragged_.pop_back();
    parts = ScanParts(std::move(op));
    std::unordered_map<ValueId, ValueId> yielded;
    std::erase_if(parts.ys, [&](const auto& y) {
      auto [it, is_new] = yielded.emplace(y.out, y.stack);
      if (!is_new) replaced_.set(y.stack, it->second);
      return !is_new;
    });
    op = std::move(parts).build();
  }

  Program& program_;
  Substitution replaced_;
  std::unordered_map<size_t, std::vector<Entry>> table_;
  std::vector<std::pair<int, ir::Ragged>> ragged_;  ///< the ragged scans that we are in, and the depth of each
  int depth_ = 0;
};

}  // namespace

void cse(Program& program) { Cse(program).run(program.body); }

}  // namespace weft::passes
