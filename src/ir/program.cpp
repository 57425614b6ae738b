#include "ir/program.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace weft::ir {
namespace {

constexpr auto kInfos = [] {
  using namespace traits;  // NOLINT(google-build-using-namespace): the words of ops.def
  return std::to_array<OpInfo>({
#define WEFT_OP(Enum, text, arity, Class, type_rule, vjp_rule, interpreter, traits) \
  {text, arity, OpClass::k##Class, traits},
#include "ir/ops.def"
  });
}();

/// What a row may not leave out, or say in two ways.
constexpr bool is_whole(const OpInfo& row) {
  const OpTraits& traits = row.traits;
  const bool is_elementwise = row.op_class == OpClass::kElementwise;
  if (traits.fails == Fails::kUnsaid) return false;
  if (is_elementwise != (traits.rows == Rows::kAlways)) return false;
  if (is_elementwise && traits.lowering != Lowering::kFused) return false;
  return !traits.by_library || is_elementwise;
}
static_assert(std::ranges::all_of(kInfos, is_whole),
              "a row of ops.def doesn't say when its op may fail, or is Elementwise without kPointwise or kLibrary");

/// Never destroyed: used until the process ends.
const auto& names = *[] {
  auto* map = new std::unordered_map<std::string_view, OpCode>;
  for (size_t i = 0; i < std::size(kInfos); ++i) map->emplace(kInfos[i].name, static_cast<OpCode>(i));
  return map;
}();

}  // namespace

const OpInfo& info(OpCode code) { return kInfos[static_cast<size_t>(code)]; }

const Attr& Op::attribute(std::string_view name) const {
  auto it = attrs.find(name);
  internal_check(it != attrs.end(), "{} has no attribute '{}'", info(code).name, name);
  return it->second;
}

void Op::refuse_type_of(std::string_view name) const {
  internal_error("{}: attribute '{}' is of another type", info(code).name, name);
}

std::optional<OpCode> op_named(std::string_view name) {
  auto it = names.find(name);
  if (it == names.end()) return std::nullopt;
  return it->second;
}

Fails fails(const Program& program, const Op& op) {
  const OpTraits& traits = traits_of(op.code);
  Fails when = traits.fails == Fails::kUnsaid ? Fails::kAnyTime : traits.fails;
  if (traits.fails_where == FailsWhere::kIntegers && is_floating(program.type(op.results[0]).dtype))
    when = Fails::kNever;
  if (traits.fails_where == FailsWhere::kRagged && !op.has("packed")) when = Fails::kNever;
  for (const Block& region : op.regions)
    for (const Op& each : region.ops)
      if (fails(program, each) != Fails::kNever) return Fails::kAnyTime;
  return when;
}

std::optional<double> constant_value(const Op& op) {
  if (!is_constant(op.code)) return std::nullopt;
  return op.attr<double>("value");
}

ValueId weights_of(const Op& op) {
  const int table = traits_of(op.code).table;
  if (table < 0 || info(op.code).op_class != OpClass::kProduct) return kNoValue;
  return op.operands[static_cast<size_t>(table)];
}

std::vector<size_t> summed_dims(const Op& product, size_t rank) {
  std::vector<size_t> dims;
  switch (traits_of(product.code).contracts) {
    case Contracts::kNothing:
      break;
    case Contracts::kLast:
      dims.push_back(rank - 1);
      break;
    case Contracts::kInner:
      dims.push_back(rank - (product.attr_or<bool>("transpose_a", false) ? 2 : 1));
      break;
    case Contracts::kLeading:
      for (size_t i = 0; i + 1 < rank; ++i) dims.push_back(i);
      break;
  }
  return dims;
}

std::span<const Annotation> annotations() {
  static constexpr Annotation kAnnotations[] = {{kCheckpoint, "scan"}};
  return kAnnotations;
}

bool is_annotation(std::string_view attr) {
  return attr.find('.') != std::string_view::npos ||
         std::ranges::find(annotations(), attr, &Annotation::name) != annotations().end();
}

std::string annotation_misfit(OpCode code, std::string_view name, const Attr& value) {
  const auto known = std::ranges::find(annotations(), name, &Annotation::name);
  if (known == annotations().end()) return "";
  const std::string_view op = info(code).name;
  if (known->op != op) return fmt::format("{}: the annotation '{}' is of {} only", op, name, known->op);
  return std::holds_alternative<bool>(value) ? ""
                                             : fmt::format("{}: the annotation '{}' must be true or false", op, name);
}

Dim size_attr(const Op& op, std::string_view name) {
  auto it = op.attrs.find(name);
  internal_check(it != op.attrs.end(), "{} has no attribute '{}'", info(op.code).name, name);
  if (const Dim* dim = std::get_if<Dim>(&it->second)) return *dim;
  return op.attr<int64_t>(name);
}

Attr as_attr(Dim size) {
  if (size.is_constant()) return size.constant();
  return size;
}

bool is_bound(std::string_view attr) {
  return attr == "start" || attr == "limit" || attr == "low" || attr == "high" || attr == "size";
}

std::optional<SliceRange> constant_range(const Op& slice) {
  const Dim start = size_attr(slice, "start"), limit = size_attr(slice, "limit");
  if (!start.is_constant() || !limit.is_constant()) return std::nullopt;
  return SliceRange{slice.attr<int64_t>("dim"), start.constant(), limit.constant()};
}

ValueId Program::new_value(Type type, std::string name) {
  values.push_back({std::move(type), std::move(name)});
  return static_cast<ValueId>(values.size() - 1);
}

bool are_ragged_sizes(const Dim& rows, const Dim& packed, const Dim& length) {
  return rows.is_symbol() && packed.is_symbol() && packed != length && !packed.mentions(rows.name()) &&
         !length.mentions(rows.name());
}

bool has_rows(const Type& type, const Ragged& ragged) { return !type.shape.empty() && type.shape[0] == ragged.rows; }

bool mentions_rows(const Type& type, const Ragged& ragged) {
  return std::ranges::any_of(type.shape, [&](const Dim& dim) { return dim.mentions(ragged.rows.name()); });
}

Type stacked(const Type& step, const Dim& length, const std::optional<Ragged>& ragged) {
  Type result = step;
  if (ragged && has_rows(step, *ragged))
    result.shape[0] = ragged->packed;
  else
    result.shape.insert(result.shape.begin(), length);
  return result;
}

Type step_of(const Type& stack, const std::optional<Ragged>& ragged) {
  Type result = stack;
  if (ragged && !stack.shape.empty() && stack.shape[0] == ragged->packed)
    result.shape[0] = ragged->rows;
  else
    result.shape.erase(result.shape.begin());
  return result;
}

namespace {

void find_batch_sizes(const Block& block, std::map<ValueId, Ragged>& found) {
  for (const Op& op : block.ops) {
    if (op.code == OpCode::kScan)
      if (ScanView view(op); view.ragged) found.emplace(view.ragged->batch_sizes, *view.ragged);
    for (const Block& region : op.regions) find_batch_sizes(region, found);
  }
}

}  // namespace

std::map<ValueId, Ragged> batch_sizes_inputs(const Program& program) {
  std::map<ValueId, Ragged> found;
  find_batch_sizes(program.body, found);
  std::erase_if(found, [&](const auto& each) {
    return std::ranges::find(program.body.args, each.first) == program.body.args.end();
  });
  return found;
}

ScanView::ScanView(const Op& op)
    : carries(op.attr<int64_t>("carries")),
      reverse(op.attr_or("reverse", false)),
      length(op.attr<Dim>("length")),
      region(op.regions.at(0)) {
  std::vector<ValueId> operands = op.operands;
  if (op.has("rows") && !operands.empty()) {
    ragged = Ragged{operands.back(), op.attr<Dim>("rows"), op.attr<Dim>("packed")};
    operands.pop_back();
  }
  internal_check(carries >= 0 && carries <= static_cast<int64_t>(operands.size()) &&
                     region.args.size() == operands.size() && region.results.size() == op.results.size() &&
                     carries <= static_cast<int64_t>(region.results.size()),
                 "scan: its operands, region and results don't fit each other");
  auto split = [this](const std::vector<ValueId>& all, std::vector<ValueId>& head, std::vector<ValueId>& tail) {
    head.assign(all.begin(), all.begin() + carries);
    tail.assign(all.begin() + carries, all.end());
  };
  split(operands, inits, xs);
  split(region.args, carry_args, x_args);
  split(region.results, carry_outs, y_outs);
  split(op.results, carry_results, stacks);
}

}  // namespace weft::ir
