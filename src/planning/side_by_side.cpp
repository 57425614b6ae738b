#include "planning/side_by_side.h"

#include <algorithm>
#include <set>

#include "passes/rewrite.h"
#include "planning/fusion/donations.h"
#include "planning/planner.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::ValueId;

/// A scan looks for others among so many stages behind it: results wait longer in memory the farther these are.
constexpr int64_t kMostAhead = 256;

/// The memory that a stage, or several, touch. Known by its buffer; results in the memory of inputs, by the input's.
struct Accesses {
  std::set<int64_t> reads, writes;
  bool may_fail = false;
};

bool meet(const std::set<int64_t>& few, const std::set<int64_t>& many) {
  return std::ranges::any_of(few, [&](int64_t memory) { return many.contains(memory); });
}

class ScanGrouping {
 public:
  ScanGrouping(const Schedule& schedule, const BlockSchedule& body) : schedule_(schedule), body_(body) {
    for (const ir::Donation& donation : schedule.program->donations)
      donated_.insert(schedule.buffer.at(schedule.program->body.args[donation.input]));
  }

  std::vector<IndependentScans> run() {
    std::vector<IndependentScans> groups;
    for (int64_t i = 0; i < count();) {
      IndependentScans group = from(i);
      if (group.scans.size() < 2) {
        ++i;
        continue;
      }
      i = group.scans.back() + 1;
      groups.push_back(std::move(group));
    }
    return groups;
  }

 private:
  int64_t count() const { return std::ssize(body_.stages); }
  const Stage& stage(int64_t place) const { return body_.stages[static_cast<size_t>(place)]; }
  bool is_scan(int64_t place) const { return stage(place).lowering == Lowering::kScan; }

  /// The scan at this place, with those behind it that depend neither on it nor on each other.
  IndependentScans from(int64_t first) const {
    IndependentScans group;
    if (!is_scan(first)) return group;
    group.scans = {first};
    Accesses touched = accesses(first);  // by scans of the group, and by what depends on them
    const int64_t end = std::min(count(), first + kMostAhead);
    for (int64_t i = first + 1;
         i < end && std::ranges::none_of(stage(i).ops, [](auto* op) { return calls_out(*op); }); ++i) {
      const Accesses own = accesses(i);
      const bool depends = depends_on(own, touched);
      (depends ? group.after : is_scan(i) ? group.scans : group.before).push_back(i);
      if (depends || is_scan(i)) add(own, touched);
    }
    const int64_t last = group.scans.back();
    for (std::vector<int64_t>* places : {&group.before, &group.after})
      std::erase_if(*places, [&](int64_t place) { return place > last; });
    return group;
  }

  bool depends_on(const Accesses& later, const Accesses& earlier) const {
    return meet(later.reads, earlier.writes) || meet(later.writes, earlier.writes) ||
           meet(later.writes, earlier.reads) || (earlier.may_fail && meet(later.writes, donated_));
  }

  static void add(const Accesses& more, Accesses& all) {
    all.reads.insert(more.reads.begin(), more.reads.end());
    all.writes.insert(more.writes.begin(), more.writes.end());
    all.may_fail = all.may_fail || more.may_fail;
  }

  Accesses accesses(int64_t place) const {
    Accesses all;
    for (const Op* op : stage(place).ops) {
      passes::for_each_use(*op, [&](ValueId value) {
        add_memory(value, all.reads);
        if (const Op* pack = pack_that_may_be_left_out(schedule_, value)) add_memory(pack->operands[0], all.reads);
      });
      for (ValueId result : op->results) add_memory(result, all.writes);
      all.may_fail = all.may_fail || may_fail(*schedule_.program, *op);
    }
    return all;
  }

  void add_memory(ValueId value, std::set<int64_t>& all) const {
    value = viewed(schedule_, value);
    if (auto found = schedule_.buffer.find(value); found != schedule_.buffer.end()) all.insert(memory(found->second));
    if (auto also = schedule_.also.find(value); also != schedule_.also.end())
      for (int64_t buffer : also->second) all.insert(memory(buffer));
  }

  int64_t memory(int64_t buffer) const {
    const int64_t donor = schedule_.plan.buffers[static_cast<size_t>(buffer)].donor;
    return donor < 0 ? buffer : schedule_.buffer.at(schedule_.program->body.args[static_cast<size_t>(donor)]);
  }

  const Schedule& schedule_;
  const BlockSchedule& body_;
  std::set<int64_t> donated_;
};

}  // namespace

std::vector<IndependentScans> independent_scans(const Schedule& schedule, const BlockSchedule& body) {
  return ScanGrouping(schedule, body).run();
}

}  // namespace weft::planning
