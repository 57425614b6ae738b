// Ops that move elements.
#include <fmt/format.h>

#include "stablehlo/lowerings.h"

namespace weft::stablehlo::lowerings {
namespace {

/// An index as i64. In rows that a ragged step does not have the index is -1, which scatter skips.
Tensor wide_index(const Site& site, size_t operand) {
  const Tensor index = site.emit().convert(site.operand(operand), DType::kI64);
  const StepRows* rows = site.writer.step_rows_of(site.op.operands[operand]);
  return rows != nullptr ? site.writer.masked(*rows, index, site.emit().like(-1, index)) : index;
}

int64_t count_of(const Sizes& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

Sizes from_dim(const Sizes& sizes, int64_t dim) { return {sizes.begin() + dim, sizes.end()}; }

/// How panels lie (docs/ir.md, pack): panel (p, i, (g*W + w)*I + s) is column g*N + p*W + w of row i*I + s.
struct Panels {
  int64_t count, rows, groups, width, interleave;
  Panels(const Site& site, const Sizes& sizes)
      : count(sizes[0]),
        rows(sizes[1]),
        groups(site.op.attr<int64_t>("groups")),
        interleave(site.op.attr_or<int64_t>("interleave", 1)) {
    width = sizes[2] / groups / interleave;
  }
};

}  // namespace

void broadcast(const Site& site) {
  site.done(site.emit().broadcast(site.operand(0), site.type().sizes, site.op.attr<Sizes>("dims")));
}

void reshape(const Site& site) { site.done(site.emit().reshape(site.operand(0), site.type().sizes)); }
void transpose(const Site& site) { site.done(site.emit().transpose(site.operand(0), site.op.attr<Sizes>("perm"))); }

/// No check here: whether the operand has these elements was checked when its sizes were bound.
void slice(const Site& site) {
  const int64_t start = site.writer.size(size_attr(site.op, "start"));
  const int64_t limit = site.writer.size(size_attr(site.op, "limit"));
  site.done(site.emit().slice(site.operand(0), site.dim(), start, limit));
}

void pad(const Site& site) {
  const int64_t low = site.writer.size(size_attr(site.op, "low"));
  const int64_t high = site.writer.size(size_attr(site.op, "high"));
  site.done(site.emit().pad(site.operand(0), site.dim(), low, high));
}

void concat(const Site& site) { site.done(site.emit().concatenate(site.writer.values(site.op.operands), site.dim())); }

void reverse(const Site& site) {
  check(site.dim() != 0 || site.writer.step_rows_of(site.op.operands[0]) == nullptr,
        "stablehlo: 'reverse' along the rows of a ragged scan has no lowering, since their number differs from step to "
        "step");
  site.done(site.emit().reverse(site.operand(0), site.dim()));
}

void gather(const Site& site) {
  const Tensor table = site.operand(0);
  // A table without rows has no valid index.
  if (table.type.sizes[0] == 0) return site.done(site.emit().constant(0, site.type()));
  site.done(site.emit().gather(table, site.operand(1)));
}

void scatter_add(const Site& site) {
  Emitter& emit = site.emit();
  const TensorType type = site.type();
  const DType sums = compute_type(type.dtype);
  const Tensor index = wide_index(site, 0), updates = emit.convert(site.operand(1), sums);
  const Tensor zeros = emit.constant(0, {sums, type.sizes});
  if (count_of(updates.type.sizes) == 0 || count_of(type.sizes) == 0) return site.done(emit.convert(zeros, type.dtype));
  site.done(emit.convert(emit.scatter("add", zeros, index, updates), type.dtype));
}

/// Of several updates of one row the last one stays, whereas StableHLO leaves their order open. So for each row the
/// largest position of an update is found first: a maximum doesn't depend on the order.
void scatter(const Site& site) {
  Emitter& emit = site.emit();
  const Tensor table = site.operand(0), updates = site.operand(2);
  const Tensor index = wide_index(site, 1);
  const int64_t rows = table.type.sizes[0], count = count_of(index.type.sizes);
  if (count == 0 || count_of(table.type.sizes) == 0) return site.done(table);
  const Tensor none = emit.constant(-1, {DType::kI64, {rows}});
  const Tensor places = emit.iota({DType::kI64, {count}}, 0);
  const Tensor last = emit.scatter("maximum", none, emit.reshape(index, {count}), places);
  Sizes flat = from_dim(table.type.sizes, 0);
  flat[0] = count;
  const Tensor zero = emit.like(0, last);
  const Tensor chosen = emit.gather(emit.reshape(updates, flat), emit.binary("maximum", last, zero));
  const Tensor is_changed = emit.broadcast(emit.compare("GE", last, zero), table.type.sizes, {0});
  site.done(emit.select(is_changed, chosen, table));
}

void dynamic_slice(const Site& site) {
  const int64_t size = site.type().sizes[static_cast<size_t>(site.dim())];
  site.done(site.emit().dynamic_slice(site.operand(0), site.operand(1), site.dim(), size));
}

void dynamic_update(const Site& site) {
  site.done(site.emit().dynamic_update(site.operand(0), site.operand(1), site.operand(2), site.dim()));
}

void pack(const Site& site) {
  Emitter& emit = site.emit();
  Tensor b = site.operand(0);
  if (site.op.attr_or("transpose_b", false)) b = emit.transpose(b, {1, 0});
  b = emit.convert(b, site.type().dtype);
  const Panels panels(site, site.type().sizes);
  const int64_t depth = b.type.sizes[0], n = b.type.sizes[1] / panels.groups;
  b = emit.pad(b, 0, 0, panels.rows * panels.interleave - depth);
  b = emit.reshape(b, {panels.rows * panels.interleave, panels.groups, n});
  b = emit.pad(b, 2, 0, panels.count * panels.width - n);
  b = emit.reshape(b, {panels.rows, panels.interleave, panels.groups, panels.count, panels.width});
  b = emit.transpose(b, {3, 0, 2, 4, 1});
  site.done(emit.reshape(b, site.type().sizes));
}

void matmul_packed(const Site& site) {
  Emitter& emit = site.emit();
  const Tensor a = site.operand(0);
  Tensor b = site.operand(1);
  const Panels panels(site, b.type.sizes);
  const int64_t depth = a.type.sizes.back(), n = site.type().sizes.back() / panels.groups;
  b = emit.reshape(b, {panels.count, panels.rows, panels.groups, panels.width, panels.interleave});
  b = emit.transpose(b, {1, 4, 2, 0, 3});
  b = emit.reshape(b, {panels.rows * panels.interleave, panels.groups, panels.count * panels.width});
  b = emit.slice(emit.slice(b, 0, 0, depth), 2, 0, n);
  b = emit.convert(emit.reshape(b, {depth, panels.groups * n}), a.type.dtype);
  site.done(emit.dot(a, b, {{}, {}, {a.type.rank() - 1}, {0}}, site.type().dtype));
}

}  // namespace weft::stablehlo::lowerings
