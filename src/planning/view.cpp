#include "planning/view.h"

namespace weft::planning {

using ir::Op;

View resolve(const Schedule& schedule, ir::ValueId value, const ir::Shape& domain) {
  View view;
  view.root = value;
  int64_t rank = schedule.program->type(value).rank();
  for (int64_t i = 0; i < rank; ++i) view.from.push_back(i);
  view.start.assign(static_cast<size_t>(rank), 0);
  for (auto def = schedule.definition.find(value); def != schedule.definition.end();
       def = schedule.definition.find(view.root)) {
    const Op& op = *def->second;
    if (ir::is_range(op.code)) {
      if (!size_attr(op, "start").is_constant()) break;  // a copy (LoweringRules::of)
      view.start[static_cast<size_t>(op.attr<int64_t>("dim"))] += op.attr<int64_t>("start");
      view.slice = &op;
      ++view.slices;
    } else if (ir::is_repeated(op.code)) {
      std::vector<int64_t> from, start;
      for (int64_t dim : op.attr<std::vector<int64_t>>("dims")) {
        from.push_back(view.from[static_cast<size_t>(dim)]);
        start.push_back(view.start[static_cast<size_t>(dim)]);
      }
      view.from = std::move(from);
      view.start = std::move(start);
      view.plain = false;
    } else {
      break;
    }
    view.root = op.operands[0];
  }
  return view;
}

bool has_columns(const View& view, int64_t rank) { return !view.from.empty() && view.from.back() == rank - 1; }

}  // namespace weft::planning
