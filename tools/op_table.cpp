#include "op_table.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "ir/program.h"
#include "stablehlo/write.h"

namespace weft::tools {
namespace {

/// The C++ names in an op's row of ops.def, which no phase keeps at run time.
struct RowNames {
  std::string_view op_class, type_rule, vjp_rule;
};

constexpr RowNames kRowNames[] = {
#define WEFT_OP(Enum, text, arity, Class, type_rule, vjp_rule, ...) {#Class, #type_rule, #vjp_rule},
#include "ir/ops.def"
};

std::string_view name_of(ir::Lowering lowering) {
  switch (lowering) {
    case ir::Lowering::kCall:
      return "call";
    case ir::Lowering::kView:
      return "view";
    case ir::Lowering::kAlias:
      return "alias";
    case ir::Lowering::kFused:
      return "fused";
    case ir::Lowering::kRowCopy:
      return "row copy";
    case ir::Lowering::kScan:
      return "scan";
    case ir::Lowering::kLoop:
      return "loop";
    case ir::Lowering::kControl:
      return "control";
  }
  return "";
}

std::string_view name_of(ir::Batching batching) {
  switch (batching) {
    case ir::Batching::kNone:
      return "no";
    case ir::Batching::kSame:
    case ir::Batching::kDims:
    case ir::Batching::kPermuted:
    case ir::Batching::kBroadcast:
    case ir::Batching::kMatmul:
    case ir::Batching::kOuter:
    case ir::Batching::kLookup:
    case ir::Batching::kWindows:
      return "yes";
  }
  return "";
}

}  // namespace

std::string op_table() {
  std::string text = "op\toperands\tclass\ttype rule\tderivative\tbatched\tlowering\tStableHLO\n";
  for (size_t i = 0; i < std::size(kRowNames); ++i) {
    const ir::OpInfo& row = ir::info(static_cast<ir::OpCode>(i));
    const RowNames& names = kRowNames[i];
    text +=
        fmt::format("{}\t{}\t{}\t{}{}\t{}\t{}\t{}\t{}\n", row.name, row.arity < 0 ? "any" : std::to_string(row.arity),
                    names.op_class, names.type_rule, row.traits.declares ? ", declared" : "",
                    names.vjp_rule == "none" ? "no" : names.vjp_rule, name_of(row.traits.batching),
                    name_of(row.traits.lowering), stablehlo::lowered_as(static_cast<ir::OpCode>(i)));
  }
  return text;
}

}  // namespace weft::tools
