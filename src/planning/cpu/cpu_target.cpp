#include "planning/cpu/cpu_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/target.h"
#include "passes/simplification/dce.h"
#include "planning/cpu/kernel_choice.h"
#include "planning/cpu/prepack.h"
#include "runtime/kernels/kernels.h"
#include "runtime/threads/cores.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::Program;

/// The largest stage. LLVM selects and schedules instructions by basic blocks, and a stage is one. Beyond a few
/// thousand instructions (a few hundred loads and stores) its time grows with the square. Measured, in microseconds an
/// LLVM instruction: alternating tanh and neg; tanh whose values all stay live; additions of a new input each:
///
///     instructions   700   1400   2800   5500   11000   21000   42000
///     tanh, neg       37     41     33     29      47      56     150
///     live on         61     56     65     52      81     167
///     inputs          60     66     76    146     281
///
/// AVX2 takes 3 times as long and grows from 2800 on, generic x86 takes 7 times.
constexpr int64_t kLargestStage = 4096;

/// The most stages of a scan that is one function. LLVM's time grows with the square of the number of loops too
/// (induction variables, register allocation): with 32, 128, 256, 500 and 1000 stages it takes 4, 5, 6, 18 and 54 ms a
/// pair of stages.
constexpr int64_t kMostStages = 128;

/// The most carries, xs and ys of a scan that is one function: with 250, 500 and 1000 carries LLVM takes 4, 7 and 13 ms
/// a carry.
constexpr int64_t kMostStacks = 256;

constexpr Limits kLimits = {
    .stage_size = kLargestStage,
    .access_size = 12,
    .stages_a_function = kMostStages,
    .stacks_a_function = kMostStacks,
    .parts = 128,         // each has its own loads in the stage's basic block
    .tiny_domain = 1024,  // starting a stage of its own takes longer
};

/// Rounding f32 to a 16-bit type, in LLVM instructions.
constexpr int64_t kRoundToHalf = 12;

/// Rows that are taken together over the panels that each take up a large part of the core's own cache: for a block of
/// only a few rows, all of such a panel would come from a more distant cache. A multiple of the kernels' 6 and 8 rows.
constexpr int64_t kRowsOfParts = 96;

int64_t rows_at_once(const Panels& panels, int64_t depth) {
  if (panels.weights == DType::kI8) return 1;  // weights of 8 bits lie in no panels
  const int64_t steps = panels.weights == DType::kBF16 ? (depth + 1) / 2 : depth;
  const int64_t panel_bytes = steps * panels.groups * panels.unroll * target::kUnit;
  return panel_bytes > runtime::private_cache_bytes() / 4 ? kRowsOfParts : 1;
}

constexpr passes::Pass kLayoutPasses[] = {
    // Packs weights into panels. It comes last, since no other pass knows panels.
    {"prepack", [](Program& program) { prepack(program, runtime::byte_products(runtime::active_isa())); }},
    // Removes the casts of weights that were packed without them.
    {"dce", passes::dce},
};

}  // namespace

CpuTarget::CpuTarget()
    : tile_rows_f32_(runtime::kernels(runtime::active_isa(), DType::kF32).tile_rows),
      tile_rows_f64_(runtime::kernels(runtime::active_isa(), DType::kF64).tile_rows),
      tile_rows_bf16_(runtime::pair_kernels(runtime::active_isa()).bf16_rows) {}

std::string CpuTarget::description() const {
  const runtime::Isa isa = runtime::active_isa();
  return fmt::format("cpu {} byte products {} bf16 {} cores {} caches {} {}", runtime::name_of(isa),
                     static_cast<int>(runtime::byte_products(isa)), runtime::has_bf16_instructions(),
                     static_cast<int>(runtime::core_kind()), runtime::private_cache_bytes(),
                     runtime::shared_cache_bytes());
}

std::span<const passes::Pass> CpuTarget::layout_passes() const { return kLayoutPasses; }

bool CpuTarget::computes(DType dtype) const {
  return is_floating(dtype) || dtype == DType::kBool || dtype == DType::kI32 || dtype == DType::kI64;
}

int64_t CpuTarget::lanes(DType dtype) const { return target::lanes(dtype); }

int64_t CpuTarget::row_block(int64_t vectors, int64_t lanes) const {
  const int64_t* rows = lanes == target::lanes(DType::kF64) ? tile_rows_f64_ : tile_rows_f32_;
  return std::max<int64_t>(1, rows[vectors]);
}

std::optional<ProductTile> CpuTarget::tile(const Program& program, const Op& product) const {
  const std::optional<Panels> panels = kernel_panels(program, product);
  if (!panels) return {};
  const ir::Type& left = program.type(product.operands[0]);
  const int64_t depth = left.shape.back().constant();
  const bool is_half = left.dtype == DType::kBF16 && panels->weights == DType::kBF16;
  const int64_t rows = rows_at_once(*panels, depth);
  return ProductTile{.columns = panels->columns,
                     .groups = panels->groups,
                     .unroll = panels->unroll,
                     .lanes = panels->lanes,
                     .rows = std::max(is_half ? tile_rows_bf16_(depth) : 1, rows),
                     .weight_bytes = depth * panels->columns * size_of(panels->weights)};
}

/// LLVM instructions (codegen/pointwise.cpp, vector_math.cpp).
int64_t CpuTarget::code_size(const Program& program, const Op& op) const {
  const DType dtype = program.type(op.results[0]).dtype;
  const ir::OpTraits& traits = ir::traits_of(op.code);
  if (!is_floating(dtype)) return traits.instructions_int;
  if (dtype == DType::kF64) return traits.instructions_f64;
  return traits.instructions + (dtype == DType::kF32 ? 0 : kRoundToHalf);
}

const Limits& CpuTarget::limits() const { return kLimits; }

OperandViews CpuTarget::views(const Program& program, const Op& op) const { return kernel_views(program, op); }

runtime::KernelCall CpuTarget::kernel(Schedule& schedule, const Op& op) const { return choose_kernel(schedule, op); }

}  // namespace weft::planning
