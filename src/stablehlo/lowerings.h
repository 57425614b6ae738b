#pragma once

#include "stablehlo/writer.h"

namespace weft::stablehlo {

/// An op to be written.
struct Site {
  Writer& writer;
  const ir::Op& op;

  Emitter& emit() const { return writer.emit(); }
  std::string_view name() const { return info(op.code).name; }
  const Tensor& operand(size_t i) const { return writer.value(op.operands[i]); }
  TensorType type(size_t result = 0) const { return writer.type(op.results[result]); }
  int64_t dim() const { return op.attr<int64_t>("dim"); }
  void done(Tensor result) const { writer.set(op.results[0], std::move(result)); }
};

using Lowering = void (*)(const Site&);

/// The lowering of an op; null if it has none.
Lowering lowering_of(ir::OpCode code);

namespace lowerings {

/// One op of StableHLO, by the name in the table.
void direct(const Site& site);

void constant(const Site& site);
void iota(const Site& site);
void size(const Site& site);
void copy(const Site& site);
void abs(const Site& site);
void sign(const Site& site);
void relu(const Site& site);
void trunc(const Site& site);
void log2(const Site& site);
void log10(const Site& site);
void erf(const Site& site);
void erfc(const Site& site);
void cast(const Site& site);
void hypot(const Site& site);
void logaddexp(const Site& site);
void compare(const Site& site);
void select(const Site& site);

void broadcast(const Site& site);
void reshape(const Site& site);
void transpose(const Site& site);
void slice(const Site& site);
void pad(const Site& site);
void concat(const Site& site);
void reverse(const Site& site);
void gather(const Site& site);
void scatter_add(const Site& site);
void scatter(const Site& site);
void dynamic_slice(const Site& site);
void dynamic_update(const Site& site);
void pack(const Site& site);

void reduce_sum(const Site& site);
void reduce_max(const Site& site);
void matmul(const Site& site);
void outer(const Site& site);
void batch_matmul(const Site& site);
void matmul_rows(const Site& site);
void matmul_packed(const Site& site);

void scan(const Site& site);
void cond(const Site& site);
void while_loop(const Site& site);
void custom_vjp(const Site& site);
void external(const Site& site);

}  // namespace lowerings
}  // namespace weft::stablehlo
