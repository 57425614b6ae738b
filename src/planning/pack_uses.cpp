#include "planning/pack_uses.h"

#include <algorithm>
#include <set>

#include "base/target.h"
#include "planning/bounded_size.h"

namespace weft::planning {
namespace {

using ir::Block;
using ir::Dim;
using ir::Op;
using ir::OpCode;
using ir::ValueId;

class UseCounter {
 public:
  explicit UseCounter(const LoweredProgram& lowered) : lowered_(lowered), program_(*lowered.program) {}

  std::map<ValueId, PackUses> run() {
    for (const ir::Donation& donation : program_.donations) rewritten_.insert(program_.body.args[donation.input]);
    visit(program_.body);
    std::map<ValueId, PackUses> uses;
    for (auto& [panels, pack] : packs_) uses.emplace(panels, std::move(pack.uses));
    return uses;
  }

 private:
  struct Pack {
    size_t depth;  ///< the number of regions around it
    PackUses uses;
  };
  /// A region around the current op.
  struct Region {
    Dim steps;
    const ir::Ragged* ragged;
    bool is_native;  ///< false: an op runs the region without stages, as the interpreter does
  };

  void visit(const Block& block) {
    for (const Op& op : block.ops) {
      if (ir::traits_of(op.code).lays_out)
        packs_[op.results[0]] = {regions_.size(), {!rewritten_.contains(memory_of(lowered_, op.operands[0])), {}, {}}};
      for (size_t i = 0; i < op.operands.size(); ++i) read(op, i);
      visit_regions(op);
    }
    for (ValueId result : block.results) keep(result);
  }

  void visit_regions(const Op& op) {
    if (op.regions.empty()) return;
    const bool is_native = lowered_.rules.of(op) != Lowering::kCall;
    std::optional<ir::ScanView> view;
    if (op.code == OpCode::kScan) {
      view.emplace(op);
      rewritten_.insert(view->carry_args.begin(), view->carry_args.end());
    }
    const Dim steps = view ? view->length : Dim(op.code == OpCode::kWhile ? target::kStepsOfWhile : 1);
    for (const Block& region : op.regions) {
      if (op.code == OpCode::kWhile) rewritten_.insert(region.args.begin(), region.args.end());
      regions_.push_back({steps, view && view->ragged ? &*view->ragged : nullptr, is_native});
      visit(region);
      regions_.pop_back();
    }
  }

  void keep(ValueId value) {
    if (auto found = packs_.find(value); found != packs_.end()) found->second.uses.may_be_left_out = false;
  }

  void read(const Op& op, size_t operand) {
    auto found = packs_.find(op.operands[operand]);
    if (found == packs_.end()) return;
    Pack& pack = found->second;
    const bool in_stages = std::ranges::all_of(regions_, &Region::is_native);
    const bool is_product = ir::traits_of(op.code).panels == static_cast<int>(operand);
    if (!is_product || !in_stages || lowered_.rules.of(op) != Lowering::kFused) return keep(op.operands[operand]);
    ir::Type type = program_.type(op.results[0]);
    Dim rows(1), times(1);
    for (size_t i = regions_.size(); i-- > pack.depth;) {
      const Region& region = regions_[i];
      times = bounded_product(times, region.steps);
      if (region.ragged && has_rows(type, *region.ragged))
        type = ir::stacked(type, Dim(1), *region.ragged);  // the type's rows are those of all steps
      else
        rows = bounded_product(rows, region.steps);
    }
    type.shape.pop_back();
    pack.uses.times.push_back(times);
    pack.uses.rows.push_back(bounded_product(rows, bounded_count(type.shape)));
  }

  const LoweredProgram& lowered_;
  const ir::Program& program_;
  std::vector<Region> regions_;
  std::set<ValueId> rewritten_;  ///< values whose memory may be written to again
  std::map<ValueId, Pack> packs_;
};

}  // namespace

std::map<ValueId, PackUses> pack_uses(const LoweredProgram& lowered) { return UseCounter(lowered).run(); }

PackSource source_of(const LoweredProgram& lowered, const Op& pack) {
  ValueId root = pack.operands[0];
  int64_t row = 0, column = 0;
  while (viewed(lowered, root) != root) {  // follows slices
    const Op& slice = *lowered.definition.at(root);
    (slice.attr<int64_t>("dim") == 0 ? row : column) += slice.attr<int64_t>("start");
    root = slice.operands[0];
  }
  const int64_t ld = lowered.program->type(root).shape[1].constant();
  return {root, row * ld + column, ld};
}

}  // namespace weft::planning
