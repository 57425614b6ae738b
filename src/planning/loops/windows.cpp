#include "planning/loops/windows.h"

#include <algorithm>
#include <set>

namespace weft::planning {
namespace {

using ir::Op;
using ir::ValueId;

class WindowFinder {
 public:
  WindowFinder(const Schedule& schedule, const BlockSchedule& body)
      : schedule_(schedule), program_(*schedule.program), body_(body) {
    for (const ir::Donation& donation : program_.donations) donated_.insert(program_.body.args[donation.input]);
    for (const Op& op : program_.body.ops) passes::for_each_use(op, [&](ValueId value) { ++uses_[value]; });
    for (ValueId result : program_.body.results) ++uses_[result];
  }

  std::map<const Stage*, size_t> run() {
    for (size_t i = 0; i < body_.stages.size(); ++i)
      if (body_.stages[i].lowering == Lowering::kScan) visit(i);
    return std::move(found_);
  }

 private:
  void visit(size_t index) {
    const Op& scan = *body_.stages[index].ops[0];
    const ir::ScanView view(scan);
    if (view.ragged || !schedule_.rules.decision(scan).batched) return;
    std::map<ValueId, int64_t> read;  // by value: how often it is an x
    for (ValueId x : view.xs) ++read[x];
    const ir::Dim& rows = program_.type(view.region.args[0]).shape[0];
    for (size_t i = 0; i < index; ++i) {
      const Stage& stage = body_.stages[i];
      if (stage.lowering != Lowering::kFused || stage.domain.size() < 3) continue;
      if (stage.domain[0] != view.length || stage.domain[1] != rows) continue;
      if (is_read_by_steps_only(stage, read) && !reads_donated(stage)) found_.emplace(&stage, index);
    }
  }

  bool is_read_by_steps_only(const Stage& stage, const std::map<ValueId, int64_t>& read) const {
    std::map<ValueId, int64_t> own;
    for (const Op* op : stage.ops) passes::for_each_use(*op, [&](ValueId value) { ++own[value]; });
    for (const Op* op : stage.ops)
      for (ValueId value : op->results) {
        if (!body_.stored.contains(value)) continue;
        auto x = read.find(value);
        const int64_t by_steps = x == read.end() ? 0 : x->second;
        if (by_steps == 0 || uses_.at(value) != by_steps + own[value]) return false;
      }
    return true;
  }

  bool reads_donated(const Stage& stage) const {
    bool reads = false;
    for (const Op* op : stage.ops)
      passes::for_each_use(*op,
                           [&](ValueId value) { reads = reads || donated_.contains(memory_of(schedule_, value)); });
    return reads;
  }

  const Schedule& schedule_;
  const ir::Program& program_;
  const BlockSchedule& body_;
  std::set<ValueId> donated_;
  std::map<ValueId, int64_t> uses_;
  std::map<const Stage*, size_t> found_;
};

}  // namespace

std::map<const Stage*, size_t> windowed_stages(const Schedule& schedule, const BlockSchedule& body) {
  return WindowFinder(schedule, body).run();
}

}  // namespace weft::planning
