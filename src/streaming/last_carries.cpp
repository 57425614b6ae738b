#include "streaming/last_carries.h"

#include <algorithm>
#include <map>

#include "passes/rewrite.h"

namespace weft::streaming {

using ir::Dim;
using ir::Op;
using ir::OpCode;
using ir::ValueId;

namespace {

struct Last {
  ValueId carry;
  Dim length;
};

/// By stack: the last carry, where each row is what the step yields for it.
void find_in(const Op& scan, std::map<ValueId, Last>& found) {
  const ir::ScanView view(scan);
  if (view.reverse || view.ragged) return;
  for (size_t y = 0; y < view.y_outs.size(); ++y) {
    const auto carry = std::ranges::find(view.carry_outs, view.y_outs[y]);
    if (carry == view.carry_outs.end()) continue;
    const auto place = static_cast<size_t>(carry - view.carry_outs.begin());
    found.emplace(view.stacks[y], Last{view.carry_results[place], view.length});
  }
}

}  // namespace

void last_carries(ir::Program& program) {
  std::map<ValueId, Last> found;
  for (Op& op : program.body.ops) {
    if (op.code == OpCode::kScan) find_in(op, found);
    if (!ir::is_range(op.code) || op.attr<int64_t>("dim") != 0) continue;
    const auto last = found.find(op.operands[0]);
    if (last == found.end() || !(ir::size_attr(op, "start") == last->second.length - Dim(1)) ||
        !(ir::size_attr(op, "limit") == last->second.length))
      continue;
    Op reshape{OpCode::kReshape, {last->second.carry}, op.results, {}, {}};
    passes::copy_note(op, {&reshape, 1});
    op = std::move(reshape);
  }
}

}  // namespace weft::streaming
