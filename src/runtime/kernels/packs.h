#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernels/pack_entry.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/window.h"

namespace weft::runtime {

// Chooses how a run gets the panels of a pack that may be left out (PackCall). The entry of the pack's buffer says what
// was chosen (pack_entry.h).

/// The destinations of the packs that runs with these values leave out, since too few rows would be multiplied by their
/// panels (target::rows_worth_packing). Depends on sizes alone: the bits are the same on any number of threads.
std::vector<int64_t> left_out_packs(const Plan& plan, const std::vector<int64_t>& symbols);

/// The packs whose panels are packed where they are multiplied: the destination of each pack, and the bytes of one
/// panel in whole cache lines. Each member needs memory for one panel. Panels are packed so in runs whose products go
/// over the weights once or twice: the panels then are never written to memory and read again. The bits are the same as
/// with a stage that packs.
std::vector<BufferBytes> packs_on_the_way(const Plan& plan, const std::vector<int64_t>& symbols);

/// The result of both functions above.
struct PacksOfProducts {
  std::vector<int64_t> left_out;
  std::vector<BufferBytes> on_the_way;
};
PacksOfProducts packs_of_products(const Plan& plan, const std::vector<int64_t>& symbols);

}  // namespace weft::runtime
