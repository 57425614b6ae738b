#include "streaming/inner_loops.h"

#include <algorithm>

#include "ir/builder.h"
#include "passes/loops/write_out.h"

namespace weft::streaming {

using ir::Block;
using ir::Builder;
using ir::Op;
using ir::OpCode;
using ir::ScanView;
using ir::ValueId;
using passes::Substitution;

namespace {

constexpr size_t kMostOps = 20000;  // as in a package, of which a stream's step is one

class Writing {
 public:
  Writing(ir::Program& program, const Lengths& lengths)
      : program_(program), lengths_(lengths), builder_(program, program.body) {}

  void run(const std::vector<Op>& ops, Substitution& map) {
    for (const Op& op : ops) {
      if (is_inner(op) && work(op) <= kMostOps) {
        const size_t first = written().size();
        passes::write_out(builder_, op, map, [&](const Block& region, Substitution& step) { run(region.ops, step); });
        passes::copy_note(op, std::span(written()).subspan(first));
      } else {
        written().push_back(passes::clone(program_, op, map));
      }
    }
  }

 private:
  std::vector<Op>& written() { return program_.body.ops; }

  bool is_timed(ValueId value) const { return lengths_.mentions(program_.type(value)); }

  bool is_inner(const Op& op) const {
    if (op.code != OpCode::kScan || !op.attr<ir::Dim>("length").is_constant() || ScanView(op).ragged) return false;
    return std::ranges::any_of(op.operands, [&](ValueId value) { return is_timed(value); }) ||
           std::ranges::any_of(op.results, [&](ValueId value) { return is_timed(value); });
  }

  /// Ops of the written loop.
  static size_t work(const Op& op) {
    size_t count = 1;
    for (const Block& region : op.regions)
      for (const Op& each : region.ops) count += work(each);
    if (op.code == OpCode::kScan && op.attr<ir::Dim>("length").is_constant())
      count *= static_cast<size_t>(op.attr<ir::Dim>("length").constant());
    return count;
  }

  ir::Program& program_;
  const Lengths& lengths_;
  Builder builder_;
};

}  // namespace

void inner_loops(ir::Program& program, const Lengths& lengths) {
  Block body = std::move(program.body);
  program.body = {};
  program.body.args = body.args;
  Substitution map;
  Writing(program, lengths).run(body.ops, map);
  for (ValueId result : body.results) program.body.results.push_back(map(result));
}

}  // namespace weft::streaming
