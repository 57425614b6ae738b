#include "ir/type_rule_checks.h"

namespace weft::ir::type_rules {

namespace {

/// The column layout of a pack.
struct PanelLayout {
  int64_t groups, width, interleave;
  int64_t panels;
};

/// A required attribute that counts something: at least 1.
int64_t count_of(const RuleInput& in, std::string_view attr) {
  constexpr int64_t kMost = 1 << 16;
  const int64_t count = in.integer(attr);
  check(count >= 1 && count <= kMost, "{}: {} must be from 1 to {}, not {}", in.name(), attr, kMost, count);
  return count;
}

PanelLayout panel_layout(const RuleInput& in, int64_t columns, int64_t width) {
  PanelLayout layout{count_of(in, "groups"), width, in.op.has("interleave") ? count_of(in, "interleave") : 1, 0};
  check(columns % layout.groups == 0, "{}: {} columns don't split into {} groups", in.name(), columns, layout.groups);
  const int64_t each = columns / layout.groups;
  layout.panels = each / width + (each % width != 0);
  return layout;
}

/// The shape of panels of this layout for an inner size of k.
Shape panel_shape(const RuleInput& in, const PanelLayout& layout, const Dim& k) {
  const Dim columns = Dim(layout.interleave) * Dim(layout.groups) * Dim(layout.width);
  if (layout.interleave == 1) return {Dim(layout.panels), k, columns};
  check(k.is_constant(), "{}: with interleave its inner size must be a number", in.name());
  const int64_t rows = k.constant() / layout.interleave + (k.constant() % layout.interleave != 0);
  return {Dim(layout.panels), Dim(rows), columns};
}

}  // namespace

std::vector<Type> reduce(const RuleInput& in) {
  in.allow({"dims"});
  const Type& operand = in.operand(0);
  check_not_bool(in, operand);
  const auto& dims = in.integers("dims");
  check_dim_list(in, dims, operand);
  Shape shape;
  for (int64_t i = 0; i < operand.rank(); ++i)
    if (!std::binary_search(dims.begin(), dims.end(), i)) shape.push_back(operand.shape[static_cast<size_t>(i)]);
  return {with_shape(operand, std::move(shape))};
}

std::vector<Type> matmul(const RuleInput& in) {
  in.allow({"transpose_b"});
  check_same_dtype(in);
  const Type& a = in.operand(0);
  const Type& b = in.operand(1);
  check_not_bool(in, a);
  check_rank_at_least(in, a, 1);
  check(b.rank() == 2, "matmul: its second operand must have 2 dims, but is {}", to_string(b));
  bool transposed = in.flag("transpose_b");
  check_inner(in, a.shape.back(), b.shape[transposed ? 1 : 0]);
  Shape shape = a.shape;
  shape.back() = b.shape[transposed ? 0 : 1];
  return {with_shape(a, std::move(shape))};
}

std::vector<Type> outer(const RuleInput& in) {
  in.allow({"round_to_f16"});
  check_same_dtype(in);
  check_not_bool(in, in.operand(0));
  check_rank_at_least(in, in.operand(0), 1);
  check_rank_at_least(in, in.operand(1), 1);
  check_leading(in, 1);
  Type result = with_shape(in.operand(0), {in.operand(0).shape.back(), in.operand(1).shape.back()});
  if (in.flag("round_to_f16")) {
    check(result.dtype == DType::kF32, "outer: round_to_f16 is for f32, not {}", to_string(in.operand(0)));
    result.dtype = DType::kF16;
  }
  return {std::move(result)};
}

std::vector<Type> batch_matmul(const RuleInput& in) {
  in.allow({"transpose_a", "transpose_b"});
  check_same_dtype(in);
  const Type& a = in.operand(0);
  const Type& b = in.operand(1);
  check_not_bool(in, a);
  check_rank_at_least(in, a, 2);
  check_rank_at_least(in, b, 2);
  check_leading(in, 2);
  size_t rank = a.shape.size();
  size_t at = in.flag("transpose_a") ? 1 : 0;
  size_t bt = in.flag("transpose_b") ? 1 : 0;
  check_inner(in, a.shape[rank - 1 - at], b.shape[rank - 2 + bt]);
  Shape shape = a.shape;
  shape[rank - 2] = a.shape[rank - 2 + at];
  shape[rank - 1] = b.shape[rank - 1 - bt];
  return {with_shape(a, std::move(shape))};
}

std::vector<Type> pack(const RuleInput& in) {
  in.allow({"groups", "width", "interleave", "transpose_b", "widen"});
  const Type& b = in.operand(0);
  check_not_bool(in, b);
  check(b.rank() == 2, "pack: its operand must have 2 dims, but is {}", to_string(b));
  const bool transposed = in.flag("transpose_b");
  const int64_t columns = constant_dim(in, b, transposed ? 0 : 1);
  const PanelLayout layout = panel_layout(in, columns, count_of(in, "width"));
  Type panels = with_shape(b, panel_shape(in, layout, b.shape[transposed ? 1 : 0]));
  if (in.flag("widen")) {
    check(b.dtype == DType::kF16 || b.dtype == DType::kI8, "pack: widen is for f16 and i8, not {}", to_string(b));
    panels.dtype = DType::kF32;
  }
  return {std::move(panels)};
}

std::vector<Type> matmul_packed(const RuleInput& in) {
  in.allow({"groups", "n", "interleave"});
  const Type& a = in.operand(0);
  const Type& packed = in.operand(1);
  const bool half = packed.dtype == DType::kBF16 || packed.dtype == DType::kF16;
  check(a.dtype == packed.dtype || (half && a.dtype == DType::kF32),
        "matmul_packed: panels of {} take operands of that type{}, not {}", name_of(packed.dtype),
        half ? " or f32" : "", to_string(a));
  check_not_bool(in, a);
  check_rank_at_least(in, a, 1);
  check(packed.rank() == 3, "matmul_packed: panels have 3 dims, but are {}", to_string(packed));
  const int64_t n = in.integer("n");
  check(n >= 0 && n <= kMaxDim, "matmul_packed: n must be a size, but is {}", n);
  const int64_t interleave = in.op.has("interleave") ? count_of(in, "interleave") : 1;
  const int64_t side_by_side = interleave * count_of(in, "groups"), columns = constant_dim(in, packed, 2);
  check(columns > 0 && columns % side_by_side == 0, "matmul_packed: panels of {} columns don't hold {} groups{}",
        columns, in.integer("groups"), interleave == 1 ? "" : fmt::format(" of {} rows side by side", interleave));
  const Shape expected = panel_shape(in, panel_layout(in, n, columns / side_by_side), a.shape.back());
  check(packed.shape == expected, "matmul_packed: {} with n = {} needs panels of {}, not {}", to_string(a), n,
        to_string(expected), to_string(packed));
  Type result = a;
  result.shape.back() = Dim(n);
  if (half) result.dtype = DType::kF32;
  return {std::move(result)};
}

std::vector<Type> matmul_rows(const RuleInput& in) {
  in.allow({"groups", "width"});
  const Type& a = in.operand(0);
  const Type& weights = in.operand(1);
  check(a.dtype == DType::kF32 || a.dtype == DType::kI32,
        "matmul_rows: its first operand must be f32 or i32, but is {}", to_string(a));
  check(weights.dtype == DType::kI8 && weights.rank() == 2, "matmul_rows: its weights must be i8 of 2 dims, but are {}",
        to_string(weights));
  check_rank_at_least(in, a, 1);
  check_inner(in, a.shape.back(), weights.shape[1]);
  panel_layout(in, constant_dim(in, weights, 0), count_of(in, "width"));
  Type result = a;
  result.shape.back() = weights.shape[0];
  return {std::move(result)};
}

}  // namespace weft::ir::type_rules
