#include "ir/size_checks.h"

#include <set>

namespace weft::ir {
namespace {

class Collector {
 public:
  explicit Collector(const Program& program) : program_(program) {}

  std::vector<Dim> run() {
    visit(program_.body);
    return {found_.begin(), found_.end()};
  }

 private:
  void add(const Dim& dim) {
    if (!dim.is_never_negative()) found_.insert(dim);
  }

  void add(ValueId value) {
    for (const Dim& dim : program_.type(value).shape) add(dim);
  }

  void visit(const Block& block) {
    for (ValueId arg : block.args) add(arg);
    for (const Op& op : block.ops) visit(op);
  }

  void visit(const Op& op) {
    for (ValueId result : op.results) add(result);
    if (op.code == OpCode::kScan) add(op.attr<Dim>("length"));
    if (op.code == OpCode::kSlice) {
      const Dim start = size_attr(op, "start"), limit = size_attr(op, "limit");
      add(start);
      add(limit - start);
      add(program_.type(op.operands[0]).shape[static_cast<size_t>(op.attr<int64_t>("dim"))] - limit);
    }
    if (op.code == OpCode::kPad) {
      add(size_attr(op, "low"));
      add(size_attr(op, "high"));
    }
    for (const Block& region : op.regions) visit(region);
  }

  const Program& program_;
  std::set<Dim> found_;
};

}  // namespace

std::vector<Dim> sizes_to_check(const Program& program) { return Collector(program).run(); }

}  // namespace weft::ir
