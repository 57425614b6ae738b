// Products of rows that lie at equal distances, as the taps of a convolution do: a loop over the rows.
#include <algorithm>
#include <bit>

#include "packages/emit/emitter.h"

namespace weft::packages {

using ir::ValueId;
using llvm::Value;

namespace {

/// Multiply-adds of a run that are written out, and about as many in a turn of its loop.
constexpr int64_t kWrittenOut = 256, kInTurn = 16;
/// Rows of a loop over one row, of which a few are written out.
constexpr int64_t kOfLoop = 4;

}  // namespace

std::optional<SliceOf> Emitter::left_in_memory(const Part& part) const {
  return slice_of(step_, part.left, [&](ValueId id) { return buffers_.contains(id) && !current_.contains(id); });
}

/// Whether the next group goes on where one ends: in the weights' rows, of the same products.
bool Emitter::are_neighbours(const std::vector<Sum>& sums, const Group& one, const Group& next) const {
  return std::ranges::equal(one, next, [&](const auto& a, const auto& b) {
    const Part &x = sums[a.first].parts[a.second], &y = sums[b.first].parts[b.second];
    return a.first == b.first && x.product == y.product && x.size == y.size && x.row + x.size == y.row &&
           x.column == y.column && x.rows == y.rows && !in_bytes(x) && !in_bytes(y);
  });
}

/// About how many multiply-adds a group is in code.
int64_t Emitter::written(const std::vector<Sum>& sums, const Group& group, const Blocks& blocks) const {
  const int64_t size = sums[group[0].first].parts[group[0].second].size;
  return static_cast<int64_t>(group.size()) * blocks.vectors *
         (is_straight(sums, group, blocks) ? size : std::min(size, kOfLoop));
}

std::map<size_t, Emitter::Run> Emitter::runs_of(const std::vector<Sum>& sums, const std::vector<Group>& groups,
                                                const Blocks& blocks) const {
  std::map<size_t, Run> runs;
  const auto part = [&](size_t g) -> const Part& { return sums[groups[g][0].first].parts[groups[g][0].second]; };
  const auto distances = [](const SliceOf& from, const SliceOf& to) {
    std::vector<int64_t> all(from.starts.size());
    std::ranges::transform(to.starts, from.starts, all.begin(), std::minus<>());
    return all;
  };
  for (size_t g = 0; g < groups.size();) {
    Run run{1, left_in_memory(part(g)), {}};
    std::optional<SliceOf> last = run.left;
    while (last && g + run.groups < groups.size() &&
           are_neighbours(sums, groups[g + run.groups - 1], groups[g + run.groups])) {
      const std::optional<SliceOf> next = left_in_memory(part(g + run.groups));
      if (!next || next->memory != last->memory) break;
      const std::vector<int64_t> moved = distances(*last, *next);
      if (run.groups == 1) run.distances = moved;
      if (moved != run.distances) break;
      last = next;
      ++run.groups;
    }
    if (static_cast<int64_t>(run.groups) * written(sums, groups[g], blocks) <= kWrittenOut || run.groups == 1) run = {};
    const size_t next = g + run.groups;
    runs.emplace(g, std::move(run));
    g = next;
  }
  return runs;
}

/// The largest number of products in a part of the sum, or in a run of parts, rounded down to a power of two.
int64_t Emitter::longest(const std::vector<Sum>& sums, size_t sum, const std::vector<Group>& groups,
                         const std::map<size_t, Run>& runs) {
  int64_t most = 1;
  for (const Part& part : sums[sum].parts) most = std::max(most, part.size);
  for (const auto& [g, run] : runs)
    for (const auto& [s, p] : groups[g])
      if (s == sum) most = std::max(most, static_cast<int64_t>(run.groups) * sums[s].parts[p].size);
  return std::bit_floor(static_cast<uint64_t>(most));
}

/// The place of an element of a left operand: of the value that it is a slice of, in a run.
Place Emitter::left_of(const Part& part, const Run& run, const Coordinate& turn, const Coordinate& k) {
  Place left{part.rows, -1, 1};
  left.at.push_back(k);
  for (size_t d = 0; d < run.distances.size(); ++d) {
    Coordinate& at = left.at[d];
    at.offset += run.left->starts[d] + turn.offset * run.distances[d];
    if (turn.base == nullptr || run.distances[d] == 0) continue;
    Value* distance = index(llvm::Instruction::Mul, turn.base, run.distances[d]);
    at.base = at.base == nullptr ? distance : index(llvm::Instruction::Add, at.base, distance);
  }
  return left;
}

/// The products of a run: of its only group, or of each in turn.
void Emitter::emit_run(const std::vector<Sum>& sums, const Group& group, const Run& run, const Blocks& blocks,
                       Value* weights, const Totals& totals, int64_t splits) {
  if (run.groups == 1) return emit_group(sums, group, run, {}, blocks, weights, totals, splits);
  const auto scope = std::pair(known_, computed_);
  const int64_t in_turn = std::max<int64_t>(kInTurn / written(sums, group, blocks), 1);
  const auto count = static_cast<int64_t>(run.groups), whole = count / in_turn * in_turn;
  loop(whole, in_turn, [&](Value* turn) {
    for (int64_t ahead = 0; ahead < in_turn; ++ahead)
      emit_group(sums, group, run, {turn, ahead}, blocks, weights, totals, splits);
  });
  std::tie(known_, computed_) = scope;
  for (int64_t at = whole; at < count; ++at)
    emit_group(sums, group, run, {nullptr, at}, blocks, weights, totals, splits);
  std::tie(known_, computed_) = scope;
}

}  // namespace weft::packages
