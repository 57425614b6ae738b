#include "runtime/kernels/packs.h"

#include "base/settings.h"
#include "base/target.h"
#include "runtime/kernels/kernels.h"
#include "runtime/threads/cores.h"

namespace weft::runtime {
namespace {

int64_t panel_bytes(const PackCall& pack) {
  const int64_t steps = pack.pairs ? (pack.k + 1) / 2 : pack.k;
  return steps * pack.groups * pack.unroll * target::kUnit;
}

/// Bytes of a weight as products compute with it. Packs of f16 weights are left out where those of f32 weights are, so
/// both give the same bits. Products on unpacked bytes are slower than products of f32 on panels, so packing bytes pays
/// from fewer rows on.
int64_t weight_bytes(const PackCall& pack) { return pack.dtype == DType::kF16 ? 4 : size_of(pack.dtype); }

/// Whether one of `stages` multiplies by the pack's panels and may do so in windows of a scan's steps.
bool may_have_windows(const std::vector<StagePlan>& stages, const PackCall& pack, const std::vector<int64_t>& symbols) {
  auto multiplies = [&](const StagePlan::Window& window) {
    return std::ranges::any_of(stages, [&](const StagePlan& stage) {
      return stage.index == window.stage && std::ranges::find(stage.packs, pack.destination) != stage.packs.end();
    });
  };
  return std::ranges::any_of(stages, [&](const StagePlan& stage) {
    return std::ranges::any_of(stage.windows, multiplies) && stage.length.evaluate(symbols) > 1;
  });
}

/// Whether packing the panels on the way is faster than a stage that packs them.
bool suits_the_way(const Plan& plan, const PackCall& pack, const std::vector<int64_t>& symbols) {
  if (estimate(pack.times, symbols) > target::kMostPacksOnTheWay) return false;
  const int64_t rows = estimate(pack.rows, symbols), cache = private_cache_bytes();
  // The panel must stay in the core's own cache. All rows are read for each panel, at best from the next cache.
  if (panel_bytes(pack) > cache / 2 || rows * pack.k * weight_bytes(pack) > 4 * cache) return false;
  if (rows <= target::kMostRowsOnTheWay) return true;
  return rows <= target::kMostRowsWithoutWindows && pack.transposed && !may_have_windows(plan.stages, pack, symbols);
}

/// Whether each step of a loop should read the 8-bit weights themselves, which have a quarter of the panels' bytes.
bool suits_steps(const PackCall& pack, const std::vector<int64_t>& symbols) {
  if (pack.dtype != DType::kI8 || !pack.transposed || byte_products(active_isa()) == ByteProducts::kSlower)
    return false;
  const int64_t times = estimate(pack.times, symbols);
  return times > 1 && estimate(pack.rows, symbols) <= target::kMostRowsOfBytes * times;
}

/// Whether the weights have so few and so long rows that dot products are faster than panels for any number of rows.
bool are_narrow(const PackCall& pack) {
  return pack.transposed && pack.dtype != DType::kI8 && pack.n <= target::lanes(pack.dtype) / 2 &&
         pack.k * weight_bytes(pack) >= target::kBytesOfNarrowRows;
}

bool is_left_out(const Plan& plan, const PackCall& pack, const std::vector<int64_t>& symbols) {
  const std::string& wanted = settings().pack;
  if (!pack.may_be_left_out || wanted == "always" || wanted == "way") return false;
  if (wanted == "never" || suits_steps(pack, symbols) || are_narrow(pack)) return true;
  const int64_t bytes = pack.k * weight_bytes(pack), rows = estimate(pack.rows, symbols);
  if (pack.dtype == DType::kBF16 && !pack.transposed) return rows <= target::kHalfRowsWorthPacking;
  const bool wide = vector_isa(active_isa()) == Isa::kAvx512;
  return rows <= target::rows_worth_packing(bytes, pack.transposed, suits_the_way(plan, pack, symbols), wide);
}

bool is_packed_on_the_way(const Plan& plan, const PackCall& pack, const std::vector<int64_t>& symbols) {
  const std::string& wanted = settings().pack;
  if (!pack.may_be_left_out || wanted == "always" || wanted == "never") return false;
  return wanted == "way" || (suits_the_way(plan, pack, symbols) && !is_left_out(plan, pack, symbols));
}

template <typename Visit>
void for_packs(const std::vector<StagePlan>& stages, const Visit& visit) {
  for (const StagePlan& stage : stages) {
    if (const auto* pack = std::get_if<PackCall>(&stage.call)) visit(*pack);
    for (const auto& region : stage.control.regions) for_packs(region, visit);
  }
}

}  // namespace

std::vector<int64_t> left_out_packs(const Plan& plan, const std::vector<int64_t>& symbols) {
  std::vector<int64_t> all;
  for_packs(plan.stages, [&](const PackCall& pack) {
    if (is_left_out(plan, pack, symbols)) all.push_back(pack.destination);
  });
  return all;
}

std::vector<BufferBytes> packs_on_the_way(const Plan& plan, const std::vector<int64_t>& symbols) {
  std::vector<BufferBytes> all;
  for_packs(plan.stages, [&](const PackCall& pack) {
    if (is_packed_on_the_way(plan, pack, symbols)) all.push_back({pack.destination, padded(panel_bytes(pack))});
  });
  return all;
}

PacksOfProducts packs_of_products(const Plan& plan, const std::vector<int64_t>& symbols) {
  return {left_out_packs(plan, symbols), packs_on_the_way(plan, symbols)};
}

}  // namespace weft::runtime
