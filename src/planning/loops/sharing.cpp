#include "planning/loops/sharing.h"

#include <algorithm>
#include <set>

#include "planning/view.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::ValueId;

using Arc = std::pair<int64_t, int64_t>;

class SharingAnalysis {
 public:
  SharingAnalysis(const Schedule& schedule, const ir::ScanView& view, const BlockSchedule& block)
      : schedule_(schedule), view_(view), block_(block), count_(static_cast<int64_t>(block.stages.size())) {
    for (size_t i = 0; i < block.stages.size(); ++i)
      for (const Op* op : block.stages[i].ops)
        for (ValueId result : op->results) producer_[result] = static_cast<int64_t>(i);
    for (size_t i = 0; i < view.carry_args.size(); ++i) next_value_[view.carry_args[i]] = view.carry_outs[i];
  }

  ColumnSharing run() {
    for (int64_t reader = 0; reader < count_; ++reader)
      for (const Op* op : stage(reader).ops)
        for (ValueId operand : op->operands) add_read(reader, *op, operand);
    return {fewest_points(count_, {arcs_.begin(), arcs_.end()}), std::move(crossing_)};
  }

 private:
  const Stage& stage(int64_t index) const { return block_.stages[static_cast<size_t>(index)]; }

  void add_read(int64_t reader, const Op& op, ValueId operand) {
    const ValueId memory = memory_of(schedule_, operand);
    if (auto made = producer_.find(memory); made != producer_.end()) {
      // A stage reads its own values in registers, at the same element.
      if (made->second == reader || !crosses(reader, op, operand, made->second)) return;
      internal_check(made->second < reader, "stage {} of a scan reads what stage {} makes", reader, made->second);
      arcs_.emplace(made->second + 1, reader);
      crossing_.insert(memory);
      return;
    }
    auto next = next_value_.find(memory);
    if (next == next_value_.end()) return;  // made before the loop
    auto writer = producer_.find(next->second);
    internal_check(writer != producer_.end(), "a carry of a scan comes from no stage");
    if (!crosses(reader, op, operand, writer->second)) return;
    add_carry_read(reader, writer->second);
    crossing_.insert(memory);
  }

  void add_carry_read(int64_t reader, int64_t writer) {
    arcs_.insert(around(writer, reader));
    arcs_.insert(around(reader, writer));
    if (view_.ragged && view_.reverse) arcs_.emplace(0, reader);
  }

  /// The stages before which a barrier lies between the end of stage `from` in one step and the beginning of stage `to`
  /// in the next.
  Arc around(int64_t from, int64_t to) const {
    if (to >= from) return {0, count_ - 1};  // the whole circle
    return from + 1 == count_ ? Arc{0, to} : Arc{from + 1, to};
  }

  bool crosses(int64_t reader, const Op& op, ValueId operand, int64_t writer) const {
    const Stage &to = stage(reader), &from = stage(writer);
    if (!splits_columns(from)) return false;
    if (!splits_columns(to) || schedule_.rules.tile(op)) return true;
    if (to.domain.back() != from.domain.back() || to.lanes != from.lanes || column_grain(to) != column_grain(from))
      return true;
    const View view = resolve(schedule_, operand, to.domain);
    if (is_merged(to) || is_merged(from))
      return to.domain != from.domain || to.rank != from.rank || memory_of(schedule_, operand) != operand;
    return !keeps_columns(view, to);
  }

  /// Whether trailing dims are merged, so that the domain's columns are not those of a value's last dim.
  static bool is_merged(const Stage& stage) { return static_cast<int64_t>(stage.domain.size()) != stage.rank; }

  /// Whether column c of the reader's domain reads column c of the memory's last dim, or column c of one of the gates
  /// there. Rows don't matter, since a unit has the same columns of all rows.
  bool keeps_columns(const View& view, const Stage& reader) const {
    const ValueId memory = memory_of(schedule_, view.root);
    if (program().type(memory).rank() == 0 || program().type(view.root).rank() == 0) return false;
    if (program().type(memory).shape.back() != program().type(view.root).shape.back()) return false;  // reshaped
    return has_columns(view, reader.rank) && view.start.back() % reader.domain.back().constant() == 0;
  }

  const ir::Program& program() const { return *schedule_.program; }

  const Schedule& schedule_;
  const ir::ScanView& view_;
  const BlockSchedule& block_;
  int64_t count_;
  std::map<ValueId, int64_t> producer_;
  std::map<ValueId, ValueId> next_value_;  ///< by carry: the value that the step yields for it
  std::set<Arc> arcs_;
  std::set<ValueId> crossing_;
};

/// Whether there is a point in each arc.
bool are_met(const std::vector<bool>& points, const std::vector<Arc>& arcs) {
  std::vector<int64_t> before = {0};  // by place: the number of points in front of it
  for (bool point : points) before.push_back(before.back() + (point ? 1 : 0));
  return std::ranges::all_of(arcs, [&](const Arc& arc) {
    const int64_t inside = before[static_cast<size_t>(arc.second) + 1] - before[static_cast<size_t>(arc.first)];
    return (arc.second < arc.first ? before.back() + inside : inside) > 0;
  });
}

}  // namespace

std::vector<bool> fewest_points(int64_t count, const std::vector<Arc>& arcs) {
  std::vector<bool> best(static_cast<size_t>(count), false);
  if (arcs.empty()) return best;
  auto length = [&](const Arc& arc) { return (arc.second - arc.first + count) % count; };
  const Arc shortest = *std::ranges::min_element(arcs, {}, length);
  // Some chosen point lies in the shortest arc, so each of its points is tried as the first. Cut there, the circle is a
  // line, on which the greedy choice is optimal: go through the arcs by their ends, and choose the end of each arc that
  // has no point yet. (Any cut gives at most one point too many, so of a long arc only some points are tried.)
  const int64_t stride = 1 + length(shortest) / 64;
  int64_t least = count + 1;
  for (int64_t tried = 0; tried <= length(shortest); tried += stride) {
    const int64_t first = (shortest.first + tried) % count;
    auto place = [&](int64_t point) { return (point - first + count) % count; };
    std::vector<Arc> cut;
    for (const Arc& arc : arcs)
      if (place(arc.first) != 0 && place(arc.first) <= place(arc.second))
        cut.emplace_back(place(arc.second), place(arc.first));
    std::ranges::sort(cut);
    std::vector<bool> points(static_cast<size_t>(count), false);
    points[static_cast<size_t>(first)] = true;
    int64_t taken = 1, last = 0;
    for (auto [end, begin] : cut) {
      if (begin <= last) continue;
      last = end;
      points[static_cast<size_t>((end + first) % count)] = true;
      ++taken;
    }
    if (taken < least) {
      least = taken;
      best = std::move(points);
    }
  }
  internal_check(are_met(best, arcs), "an arc of a circle was left without a point");
  return best;
}

ColumnSharing share_columns(const Schedule& schedule, const ir::ScanView& view, const BlockSchedule& block) {
  return SharingAnalysis(schedule, view, block).run();
}

}  // namespace weft::planning
