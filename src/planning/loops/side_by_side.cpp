#include "planning/loops/side_by_side.h"

#include <algorithm>
#include <set>

#include "passes/rewrite.h"
#include "planning/fusion/donations.h"
#include "planning/planner.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::ValueId;

/// How many stages after a scan are searched for other scans to run beside it. The farther away these are, the longer
/// results wait in memory.
constexpr int64_t kMostAhead = 256;

/// The memory that one or several stages access, by buffer. A result in the memory of an input counts as the input.
struct Accesses {
  std::set<int64_t> reads, writes;
  bool may_fail = false;
};

bool meet(const std::set<int64_t>& few, const std::set<int64_t>& many) {
  return std::ranges::any_of(few, [&](int64_t memory) { return many.contains(memory); });
}

class ScanGrouping {
 public:
  ScanGrouping(const Schedule& schedule, const BlockSchedule& body, const std::map<const Stage*, size_t>& windowed)
      : schedule_(schedule), body_(body), windowed_(windowed) {
    for (const ir::Donation& donation : schedule.program->donations)
      donated_.insert(schedule.buffer.at(schedule.program->body.args[donation.input]));
  }

  std::vector<ScanGroup> run() {
    std::vector<ScanGroup> groups;
    for (int64_t i = 0; i < count();) {
      ScanGroup group = from(i);
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

  /// The group that starts with the scan at this place. A later scan joins if it follows a scan of the group, or is
  /// independent of all of them.
  ScanGroup from(int64_t first) {
    ScanGroup group;
    if (!is_scan(first)) return group;
    group.scans = {first};
    waiting_.clear();
    Accesses touched = accesses(first);  // memory of the group's scans, and of all stages that depend on them
    const int64_t end = std::min(count(), first + kMostAhead);
    for (int64_t i = first + 1;
         i < end && std::ranges::none_of(stage(i).ops, [](auto* op) { return calls_out(*op); }); ++i) {
      if (is_scan(i)) {
        take_scan(i, group, touched);
      } else if (const Accesses own = accesses(i); !depends_on(own, touched)) {
        group.before.push_back(i);
      } else if (may_wait_for_its_scan(i, group, touched)) {
        waiting_[static_cast<int64_t>(windowed_.at(&stage(i)))].push_back(i);
      } else {
        group.after.push_back(i);
        add(own, touched);
      }
    }
    const int64_t last = group.scans.back();
    for (const auto& [scan, stages] : waiting_)  // their scans came too late
      group.after.insert(group.after.end(), stages.begin(), stages.end());
    std::ranges::sort(group.after);
    for (std::vector<int64_t>* places : {&group.before, &group.after})
      std::erase_if(*places, [&](int64_t place) { return place > last; });
    return group;
  }

  /// Takes the scan at this place into the group, with the stages that wait for it, or puts them all after the group.
  void take_scan(int64_t place, ScanGroup& group, Accesses& touched) {
    std::vector<int64_t> stages;
    if (auto found = waiting_.extract(place)) stages = std::move(found.mapped());
    std::set<int64_t> leaders;
    bool follows = follows_as_scan(place, group, touched, leaders);
    for (int64_t i : stages) follows = follows && follows_as_window(i, group, touched, leaders);
    std::vector<int64_t>& inner = follows ? group.within : group.after;
    inner.insert(inner.end(), stages.begin(), stages.end());
    (follows ? group.scans : group.after).push_back(place);
    for (int64_t leader : leaders)
      if (follows) group.follows.emplace_back(std::ssize(group.scans) - 1, leader);
    for (int64_t i : stages) add(accesses(i), touched);
    add(accesses(place), touched);
  }

  /// Whether the stage could run in the windows of a later scan, if that scan joins the group.
  bool may_wait_for_its_scan(int64_t place, const ScanGroup& group, const Accesses& touched) const {
    std::set<int64_t> leaders;
    return windowed_.contains(&stage(place)) && follows_as_window(place, group, touched, leaders);
  }

  // ---- what follows step by step

  /// Whether the scan depends on the group only through xs that are stacks of the group's scans. Adds these scans to
  /// `leaders`.
  bool follows_as_scan(int64_t place, const ScanGroup& group, const Accesses& touched,
                       std::set<int64_t>& leaders) const {
    const Op& op = *stage(place).ops[0];
    const ir::ScanView view(op);
    std::map<ValueId, int64_t> by_steps;  // by value: how often the scan reads it as such an x
    for (ValueId x : view.xs)
      if (const int64_t leader = leader_of(x, view, group); leader >= 0) {
        leaders.insert(leader);
        ++by_steps[x];
      }
    return !depends_on(accesses(place, [&](ValueId value) { return by_steps[value]-- > 0; }), touched);
  }

  /// Whether the stage depends on the group only by reading stacks of its scans, each row from the slice of its step.
  bool follows_as_window(int64_t place, const ScanGroup& group, const Accesses& touched,
                         std::set<int64_t>& leaders) const {
    const ir::ScanView view(*stage(static_cast<int64_t>(windowed_.at(&stage(place)))).ops[0]);
    auto by_steps = [&](ValueId value) {
      const int64_t leader = leader_of(value, view, group);
      if (leader >= 0) leaders.insert(leader);
      return leader >= 0;
    };
    return !depends_on(accesses(place, by_steps), touched);
  }

  /// The index in the group of the scan that has the value in its stack; -1 if there is none. The stack's steps must be
  /// the value's first dim, and the scan must be as long as the follower and go the same way.
  int64_t leader_of(ValueId value, const ir::ScanView& follower, const ScanGroup& group) const {
    if (follower.ragged) return -1;
    const ir::Program& program = *schedule_.program;
    auto has_steps = [&](ValueId each) {
      const ir::Shape& shape = program.type(each).shape;
      return !shape.empty() && shape[0] == follower.length;
    };
    for (;;) {
      auto made = schedule_.definition.find(value);
      if (made == schedule_.definition.end() || !has_steps(value)) return -1;
      if (ir::is_alias(made->second->code)) {
        value = made->second->operands[0];
        continue;
      }
      for (size_t i = 0; i < group.scans.size(); ++i) {
        const Op& op = *stage(group.scans[i]).ops[0];
        if (&op != made->second) continue;
        const ir::ScanView leader(op);
        const bool is_stack = std::ranges::find(leader.stacks, value) != leader.stacks.end();
        const bool alike = !leader.ragged && leader.length == follower.length && leader.reverse == follower.reverse;
        return is_stack && alike ? static_cast<int64_t>(i) : -1;
      }
      return -1;
    }
  }

  // ---- memory

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
    return accesses(place, [](ValueId) { return false; });
  }

  /// The memory that the stage at this place accesses, except reads of values for which is_left_out(value) holds.
  template <typename IsLeftOut>
  Accesses accesses(int64_t place, IsLeftOut is_left_out) const {
    Accesses all;
    for (const Op* op : stage(place).ops) {
      passes::for_each_use(*op, [&](ValueId value) {
        if (is_left_out(value)) return;
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
  const std::map<const Stage*, size_t>& windowed_;
  std::set<int64_t> donated_;
  std::map<int64_t, std::vector<int64_t>> waiting_;  ///< by place of a scan: stages that could run in its windows
};

}  // namespace

std::vector<ScanGroup> scan_groups(const Schedule& schedule, const BlockSchedule& body,
                                   const std::map<const Stage*, size_t>& windowed) {
  return ScanGrouping(schedule, body, windowed).run();
}

}  // namespace weft::planning
