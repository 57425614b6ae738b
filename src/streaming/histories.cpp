#include "streaming/histories.h"

#include <algorithm>

#include "ir/builder.h"

namespace weft::streaming {
namespace {

using ir::Op;
using ir::ValueId;

const Op* maker_of(const ir::Program& program, ValueId value) {
  const auto& ops = program.body.ops;
  const auto found =
      std::ranges::find_if(ops, [&](const Op& op) { return std::ranges::find(op.results, value) != op.results.end(); });
  return found == ops.end() ? nullptr : &*found;
}

std::optional<History> history_of(const ir::Program& program, ValueId state, const Op* made, int64_t least_bytes) {
  if (made == nullptr || !ir::is_join(made->code) || made->operands.size() < 2) return std::nullopt;
  const int64_t dim = made->attr<int64_t>("dim");
  const Op* kept = maker_of(program, made->operands[0]);
  const bool is_part =
      kept != nullptr && ir::is_range(kept->code) && kept->operands[0] == state && kept->attr<int64_t>("dim") == dim;
  if (!is_part) return std::nullopt;
  const ir::Type& type = program.type(state);
  int64_t bytes = size_of(type.dtype);
  for (size_t i = 0; i < type.shape.size(); ++i) {
    const int64_t size = type.shape[i].constant();
    if (i < static_cast<size_t>(dim) && size != 1) return std::nullopt;
    bytes *= size;
  }
  History history{static_cast<size_t>(dim), type.shape[static_cast<size_t>(dim)].constant(), 0};
  history.fresh = kept->attr<int64_t>("start");
  const int64_t left = program.type(kept->results[0]).shape[history.dim].constant();
  const bool to_the_end = history.fresh > 0 && left == history.rows - history.fresh;
  return to_the_end && bytes >= least_bytes ? std::optional(history) : std::nullopt;
}

}  // namespace

StepWithHistories with_histories(const ir::Program& step, size_t states, int64_t least_bytes) {
  StepWithHistories made{step, std::vector<std::optional<History>>(states)};
  ir::Program& program = made.step;
  ir::Builder builder(program, program.body);
  for (size_t i = 0; i < states; ++i) {
    const Op* op = maker_of(program, program.body.results[i]);
    made.histories[i] = history_of(program, program.body.args[i], op, least_bytes);
    if (!made.histories[i]) continue;
    const std::vector<ValueId> fresh(op->operands.begin() + 1, op->operands.end());
    const auto dim = static_cast<int64_t>(made.histories[i]->dim);
    program.body.results[i] = fresh.size() == 1 ? fresh[0] : builder.concat(fresh, dim);
  }
  return made;
}

}  // namespace weft::streaming
