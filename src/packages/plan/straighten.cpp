#include "packages/plan/straighten.h"

#include <map>
#include <optional>

#include "ir/builder.h"
#include "passes/loops/write_out.h"

namespace weft::packages {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::ValueId;
using passes::Substitution;

constexpr size_t kMostOps = 20000;  // LLVM takes some 20 us for an instruction

class Straightener {
 public:
  Straightener(ir::Program& program, Block& out) : program_(program), builder_(program, out) {}

  void run(const Block& block, Substitution& map) {
    for (const Op& op : block.ops) {
      check(op.code != OpCode::kWhile,
            "weft.package: the step has a loop whose number of steps depends on values (weft.while_loop), which can't "
            "be packaged: make it a weft.scan of as many steps as it may take");
      if (op.code == OpCode::kScan)
        scan(op, map);
      else if (op.code == OpCode::kCond)
        cond(op, map);
      else if (ir::is_range(op.code))
        slice(op, map);
      else
        builder_.block().ops.push_back(passes::clone(program_, op, map));
      check(builder_.block().ops.size() <= kMostOps,
            "weft.package: the loops in the step are more than {} operations when they are written out, which would "
            "take long to compile: make each step of them a step of the package",
            kMostOps);
    }
  }

 private:
  void scan(const Op& op, Substitution& map) {
    check(!ir::ScanView(op).ragged, "weft.package: the step has a loop over packed sequences, which can't be packaged");
    passes::write_out(builder_, op, map, [&](const Block& region, Substitution& step) { run(region, step); });
  }

  /// A slice of a reshape becomes a reshape of a slice where the dim is one before, too: what a loop or a module
  /// stacked and takes apart again is then what was stacked.
  void slice(const Op& op, Substitution& map) {
    const auto range = ir::constant_range(op);
    ValueId value = map(op.operands[0]);
    int64_t dim = op.attr<int64_t>("dim");
    while (range) {
      const Op* reshape = reshape_of(value);
      const auto before = reshape == nullptr ? std::nullopt : same_dim(reshape->operands[0], value, dim);
      if (!before) break;
      value = reshape->operands[0];
      dim = *before;
    }
    if (value == map(op.operands[0])) {
      builder_.block().ops.push_back(passes::clone(program_, op, map));
      return;
    }
    const ir::Shape shape = program_.type(op.results[0]).shape;
    map.set(op.results[0], builder_.reshape(builder_.slice(value, dim, range->start, range->limit), shape));
  }

  /// The reshape that computes a value, or null.
  const Op* reshape_of(ValueId value) {
    const std::vector<Op>& ops = builder_.block().ops;
    for (; indexed_ < ops.size(); ++indexed_)
      if (ir::is_alias(ops[indexed_].code)) reshapes_[ops[indexed_].results[0]] = indexed_;
    const auto found = reshapes_.find(value);
    return found == reshapes_.end() ? nullptr : &ops[found->second];
  }

  /// The dim of `before`, a value that was reshaped, that is a dim of the result: of the same size, behind as many
  /// elements.
  std::optional<int64_t> same_dim(ValueId before, ValueId after, int64_t dim) const {
    const ir::Shape &from = program_.type(before).shape, &to = program_.type(after).shape;
    const int64_t size = to[static_cast<size_t>(dim)].constant();
    if (size == 1 || ir::element_count(to).constant() == 0) return std::nullopt;
    int64_t wanted = 1, outer = 1;
    for (int64_t i = 0; i < dim; ++i) wanted *= to[static_cast<size_t>(i)].constant();
    for (size_t i = 0; i < from.size(); ++i) {
      const int64_t here = from[i].constant();
      if (outer == wanted && here == size) return static_cast<int64_t>(i);
      outer *= here;
    }
    return std::nullopt;
  }

  void cond(const Op& op, Substitution& map) {
    check(ir::fails(program_, op) == ir::Fails::kNever,
          "weft.package: the step has a branch in which an index may be out of range or an integer may be divided by "
          "zero; in a package both sides of a branch are computed");
    const ValueId predicate = map(op.operands[0]);
    std::vector<std::vector<ValueId>> sides;
    for (const Block& region : op.regions) {
      Substitution side = map;
      run(region, side);
      std::vector<ValueId>& results = sides.emplace_back();
      for (ValueId result : region.results) results.push_back(side(result));
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      const ir::Shape shape = program_.type(op.results[i]).shape;
      map.set(op.results[i], builder_.select(builder_.broadcast(predicate, shape, {}), sides[0][i], sides[1][i]));
    }
  }

  ir::Program& program_;
  ir::Builder builder_;
  size_t indexed_ = 0;                  // ops whose reshapes are in `reshapes_`
  std::map<ValueId, size_t> reshapes_;  // their numbers
};

}  // namespace

void straighten(ir::Program& program) {
  Block body = std::move(program.body);
  program.body = {};
  program.body.args = body.args;
  Substitution map;
  Straightener(program, program.body).run(body, map);
  for (ValueId result : body.results) program.body.results.push_back(map(result));
}

}  // namespace weft::packages
