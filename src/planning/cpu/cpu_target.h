#pragma once

#include "planning/target.h"

namespace weft::planning {

/// The CPUs that codegen and jit make code for, and the kernels of src/runtime. Products read weights in panels
/// (planning/cpu/prepack.h). Layouts are the same for every instruction set (base/target.h); the number of rows of a
/// tile is not.
class CpuTarget : public Target {
 public:
  /// The target with the instruction set in use (runtime::active_isa).
  CpuTarget();

  std::string description() const override;
  std::span<const passes::Pass> layout_passes() const override;
  bool computes(DType dtype) const override;
  int64_t lanes(DType dtype) const override;
  int64_t row_block(int64_t vectors, int64_t lanes) const override;
  std::optional<ProductTile> tile(const ir::Program& program, const ir::Op& product) const override;
  int64_t code_size(const ir::Program& program, const ir::Op& op) const override;
  const Limits& limits() const override;
  OperandViews views(const ir::Program& program, const ir::Op& op) const override;
  runtime::KernelCall kernel(Schedule& schedule, const ir::Op& op) const override;

 private:
  const int64_t* tile_rows_f32_;  ///< rows of the micro-kernels' tiles, by the vectors of a panel
  const int64_t* tile_rows_f64_;
  int64_t (*tile_rows_bf16_)(int64_t depth);
};

}  // namespace weft::planning
