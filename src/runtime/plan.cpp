#include "runtime/plan.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace weft::runtime {
namespace {

constexpr int64_t kLine = 64;

bool live_together(const BufferPlan& a, const BufferPlan& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

int64_t DimExpr::evaluate(const std::vector<int64_t>& values) const {
  int64_t result = factor;
  for (int64_t symbol : symbols)
    check(!__builtin_mul_overflow(result, values[static_cast<size_t>(symbol)], &result), "weft: a size exceeds 2^63");
  return result;
}

int64_t instance_bytes(const BufferPlan& buffer, const std::vector<int64_t>& symbol_values) {
  int64_t bytes = 0;
  check(!__builtin_mul_overflow(buffer.elements.evaluate(symbol_values), buffer.element_size, &bytes) &&
            bytes <= INT64_MAX / 4,
        "weft: the size of '{}' exceeds 2^61 bytes", buffer.name);
  return (bytes + kLine - 1) / kLine * kLine;
}

ArenaLayout lay_out(const Plan& plan, const std::vector<int64_t>& symbol_values) {
  ArenaLayout layout;
  layout.offsets.assign(plan.buffers.size(), -1);
  std::vector<int64_t> bytes(plan.buffers.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    if (plan.buffers[i].storage != Storage::kArena) continue;
    bytes[i] = instance_bytes(plan.buffers[i], symbol_values) * plan.buffers[i].copies;
    order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::vector<size_t> placed;  // by offset
  for (size_t i : order) {
    int64_t offset = 0;
    for (size_t other : placed) {
      if (!live_together(plan.buffers[i], plan.buffers[other])) continue;
      if (offset + bytes[i] <= layout.offsets[other]) break;
      offset = std::max(offset, layout.offsets[other] + bytes[other]);
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + bytes[i]);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, [&](size_t p) { return layout.offsets[p]; }), i);
  }
  return layout;
}

std::string describe(const Plan& plan, const std::vector<int64_t>& symbol_values) {
  ArenaLayout layout = lay_out(plan, symbol_values);
  std::string text;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& buffer = plan.buffers[i];
    int64_t bytes = instance_bytes(buffer, symbol_values) * buffer.copies;
    if (buffer.storage == Storage::kArena)
      text += fmt::format("{}: {} bytes at {}, stages {} to {}\n", buffer.name, bytes, layout.offsets[i], buffer.first,
                          buffer.last);
    else
      text += fmt::format("{}: {} bytes, {} {}\n", buffer.name, bytes,
                          buffer.storage == Storage::kInput ? "input" : "output", buffer.index);
  }
  return text + fmt::format("peak {} bytes\n", layout.bytes);
}

}  // namespace weft::runtime
