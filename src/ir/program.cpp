#include "ir/program.h"

#include <array>
#include <unordered_map>

namespace weft::ir {
namespace {

constexpr OpInfo kInfos[] = {
#define WEFT_OP(Enum, text, arity, Class, ...) {text, arity, OpClass::k##Class},
#include "ir/ops.def"
};

}  // namespace

const OpInfo& info(OpCode code) { return kInfos[static_cast<size_t>(code)]; }

std::optional<OpCode> op_named(std::string_view name) {
  static const auto& table = *[] {
    auto* map = new std::unordered_map<std::string_view, OpCode>;  // never destroyed: used until the process ends
    for (size_t i = 0; i < std::size(kInfos); ++i) map->emplace(kInfos[i].name, static_cast<OpCode>(i));
    return map;
  }();
  auto it = table.find(name);
  if (it == table.end()) return std::nullopt;
  return it->second;
}

bool is_annotation(std::string_view attr) {
  return attr.find('.') != std::string_view::npos || attr == "stage" || attr == "batched" || attr == "fallback";
}

ValueId Program::new_value(Type type, std::string name) {
  values.push_back({std::move(type), std::move(name)});
  return static_cast<ValueId>(values.size() - 1);
}

ScanView::ScanView(const Op& op)
    : carries(op.attr<int64_t>("carries")),
      reverse(op.attr_or("reverse", false)),
      length(op.attr<Dim>("length")),
      region(op.regions.at(0)) {
  internal_check(carries >= 0 && carries <= static_cast<int64_t>(op.operands.size()) &&
                     region.args.size() == op.operands.size() && region.results.size() == op.results.size() &&
                     carries <= static_cast<int64_t>(region.results.size()),
                 "scan: its operands, region and results don't fit each other");
  auto split = [this](const std::vector<ValueId>& all, std::vector<ValueId>& head, std::vector<ValueId>& tail) {
    head.assign(all.begin(), all.begin() + carries);
    tail.assign(all.begin() + carries, all.end());
  };
  split(op.operands, inits, xs);
  split(region.args, carry_args, x_args);
  split(region.results, carry_outs, y_outs);
  split(op.results, carry_results, stacks);
}

}  // namespace weft::ir
