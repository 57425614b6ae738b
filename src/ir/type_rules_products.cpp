#include "ir/type_rule_checks.h"

namespace weft::ir::type_rules {

namespace {

/// The panels of a pack: columns, groups and width of one.
struct PackLayout {
  int64_t groups, unroll, lanes, panels, width;
};

PackLayout pack_layout(const RuleInput& in, int64_t columns) {
  PackLayout layout{in.integer("groups"), in.integer("unroll"), in.integer("lanes"), 0, 0};
  constexpr int64_t kMost = 1 << 16;
  for (int64_t each : {layout.groups, layout.unroll, layout.lanes})
    check(each >= 1 && each <= kMost, "{}: groups, unroll and lanes must be from 1 to {}, not {}", in.name(), kMost,
          each);
  check(columns % layout.groups == 0, "{}: {} columns don't split into {} groups", in.name(), columns, layout.groups);
  int64_t step = layout.unroll * layout.lanes;
  int64_t n = columns / layout.groups;
  layout.panels = n / step + (n % step != 0);
  layout.width = layout.groups * step;
  return layout;
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
  in.allow({});
  check_same_dtype(in);
  check_not_bool(in, in.operand(0));
  check_rank_at_least(in, in.operand(0), 1);
  check_rank_at_least(in, in.operand(1), 1);
  check_leading(in, 1);
  return {with_shape(in.operand(0), {in.operand(0).shape.back(), in.operand(1).shape.back()})};
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

namespace {

/// The shape of the panels of `layout` for an inner size of k. In pairs, two rows of the weights lie side by side.
Shape panel_shape(const RuleInput& in, const PackLayout& layout, const Dim& k) {
  if (!in.flag("pairs")) return {Dim(layout.panels), k, Dim(layout.width)};
  check(k.is_constant(), "{}: in pairs its inner size must be a number", in.name());
  return {Dim(layout.panels), Dim(k.constant() / 2 + k.constant() % 2), Dim(2 * layout.width)};
}

}  // namespace

std::vector<Type> pack(const RuleInput& in) {
  in.allow({"groups", "unroll", "lanes", "transpose_b", "pairs"});
  const Type& b = in.operand(0);
  check_not_bool(in, b);
  check(b.rank() == 2, "pack: its operand must have 2 dims, but is {}", to_string(b));
  check(!in.flag("pairs") || b.dtype == DType::kBF16, "pack: only bf16 is packed in pairs, not {}", to_string(b));
  bool transposed = in.flag("transpose_b");
  PackLayout layout = pack_layout(in, constant_dim(in, b, transposed ? 0 : 1));
  return {with_shape(b, panel_shape(in, layout, b.shape[transposed ? 1 : 0]))};
}

std::vector<Type> matmul_packed(const RuleInput& in) {
  in.allow({"groups", "unroll", "lanes", "n", "pairs"});
  const Type& a = in.operand(0);
  const Type& packed = in.operand(1);
  bool pairs = in.flag("pairs");
  if (pairs)
    check(packed.dtype == DType::kBF16 && (a.dtype == DType::kBF16 || a.dtype == DType::kF32),
          "matmul_packed: pairs are bf16, and f32 or bf16 beside them, not {} and {}", to_string(a), to_string(packed));
  else
    check_same_dtype(in);
  check_not_bool(in, a);
  check_rank_at_least(in, a, 1);
  int64_t n = in.integer("n");
  check(n >= 0 && n <= kMaxDim, "matmul_packed: n is {}", n);
  Shape expected = panel_shape(in, pack_layout(in, n), a.shape.back());
  check(packed.shape == expected, "matmul_packed: {} with n = {} needs panels of {}, not {}", to_string(a), n,
        to_string(expected), to_string(packed));
  Type result = a;
  result.shape.back() = Dim(n);
  if (pairs) result.dtype = DType::kF32;
  return {std::move(result)};
}

}  // namespace weft::ir::type_rules
