#include "runtime/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"

namespace weft::runtime {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kHostedFrom = 1 << 20;  // smaller buffers stay together in the arena, which is warm in the caches

bool live_together(const BufferPlan& a, const BufferPlan& b) { return a.first <= b.last && b.first <= a.last; }

/// Memory in which buffers are placed: the arena, or an output's memory until the output is written.
class Space {
 public:
  Space(const Plan& plan, ArenaLayout& layout, const std::vector<int64_t>& bytes)
      : plan_(plan), layout_(layout), bytes_(bytes) {}
  Space(const Plan& plan, ArenaLayout& layout, const std::vector<int64_t>& bytes, size_t output,
        const std::vector<int64_t>& symbol_values)
      : plan_(plan),
        layout_(layout),
        bytes_(bytes),
        output_(static_cast<int64_t>(output)),
        written_(plan.buffers[output].first),
        room_(plan.buffers[output].elements.evaluate(symbol_values) * plan.buffers[output].element_size) {}

  /// First fit: places the buffer at the lowest free offset. False if there is no room during its live range.
  bool add(size_t buffer) {
    if (plan_.buffers[buffer].last >= written_) return false;
    int64_t offset = 0;
    for (size_t other : placed_) {
      if (!live_together(plan_.buffers[buffer], plan_.buffers[other])) continue;
      if (offset + bytes_[buffer] <= layout_.offsets[other]) break;
      offset = std::max(offset, layout_.offsets[other] + bytes_[other]);
    }
    if (offset + bytes_[buffer] > room_) return false;
    layout_.offsets[buffer] = offset;
    layout_.hosts[buffer] = output_;
    end_ = std::max(end_, offset + bytes_[buffer]);
    placed_.insert(std::ranges::upper_bound(placed_, offset, {}, [&](size_t p) { return layout_.offsets[p]; }), buffer);
    return true;
  }

  int64_t end() const { return end_; }

 private:
  const Plan& plan_;
  ArenaLayout& layout_;
  const std::vector<int64_t>& bytes_;
  int64_t output_ = -1;
  int64_t written_ = INT64_MAX;  ///< the stage that writes the output
  int64_t room_ = INT64_MAX;
  int64_t end_ = 0;
  std::vector<size_t> placed_;  ///< by offset
};

}  // namespace

namespace {

/// The factor times the values; none if that overflows. A factor of 0 gives 0, even if the others overflow.
std::optional<int64_t> product(const DimExpr& dim, const std::vector<int64_t>& values) {
  int64_t result = dim.factor;
  bool overflow = false;
  for (int64_t symbol : dim.symbols) {
    const int64_t value = values[static_cast<size_t>(symbol)];
    if (value == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(result, value, &result);
  }
  if (overflow) return std::nullopt;
  return result;
}

}  // namespace

int64_t DimExpr::evaluate(const std::vector<int64_t>& values) const {
  std::optional<int64_t> result = product(*this, values);
  check(result.has_value(), "weft: a size exceeds 2^63");
  return *result;
}

int64_t estimate(const std::vector<DimExpr>& terms, const std::vector<int64_t>& values) {
  int64_t sum = 0;
  for (const DimExpr& term : terms)
    if (__builtin_add_overflow(sum, product(term, values).value_or(INT64_MAX), &sum)) return INT64_MAX;
  return sum;
}

int64_t instance_bytes(const BufferPlan& buffer, const std::vector<int64_t>& symbol_values) {
  int64_t bytes = 0;
  check(!__builtin_mul_overflow(buffer.elements.evaluate(symbol_values), buffer.element_size, &bytes) &&
            bytes <= INT64_MAX / 4,
        "weft: the size of '{}' exceeds 2^61 bytes", buffer.name);
  return (bytes + kLine - 1) / kLine * kLine;
}

int64_t instances(const BufferPlan& buffer, const std::vector<int64_t>& members) {
  if (buffer.copies_a_member == 0 || members.empty()) return buffer.copies;
  return buffer.copies + buffer.copies_a_member * (members[static_cast<size_t>(buffer.first)] - 1);
}

bool ControlPlan::operator==(const ControlPlan& other) const = default;

ArenaLayout lay_out(const Plan& plan, const std::vector<int64_t>& symbol_values, bool uses_outputs,
                    const std::vector<int64_t>& members) {
  ArenaLayout layout;
  layout.offsets.assign(plan.buffers.size(), -1);
  layout.hosts.assign(plan.buffers.size(), -1);
  std::vector<int64_t> bytes(plan.buffers.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    if (plan.buffers[i].storage != Storage::kArena) continue;
    bytes[i] = instance_bytes(plan.buffers[i], symbol_values) * instances(plan.buffers[i], members);
    order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  Space arena(plan, layout, bytes);
  std::vector<Space> outputs;
  for (size_t i = 0; uses_outputs && i < plan.buffers.size(); ++i)
    if (plan.buffers[i].storage == Storage::kOutput) outputs.emplace_back(plan, layout, bytes, i, symbol_values);
  for (size_t i : order) {
    bool hosted = bytes[i] >= kHostedFrom && std::ranges::any_of(outputs, [&](Space& space) { return space.add(i); });
    if (!hosted) arena.add(i);
  }
  layout.bytes = arena.end();
  return layout;
}

namespace {

std::string host_name(const Plan& plan, int64_t host) {
  return host < 0 ? "" : fmt::format(" of output {}", plan.buffers[static_cast<size_t>(host)].index);
}

}  // namespace

std::string describe(const Plan& plan, const std::vector<int64_t>& symbol_values) {
  ArenaLayout layout = lay_out(plan, symbol_values, true);
  std::string text;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& buffer = plan.buffers[i];
    int64_t bytes = instance_bytes(buffer, symbol_values) * buffer.copies;
    if (buffer.storage == Storage::kArena)
      text += fmt::format("{}: {} bytes at {}{}, stages {} to {}\n", buffer.name, bytes, layout.offsets[i],
                          host_name(plan, layout.hosts[i]), buffer.first, buffer.last);
    else if (buffer.storage == Storage::kStep)
      text += fmt::format("{}: {} bytes a step, stages {} to {}\n", buffer.name, bytes, buffer.first, buffer.last);
    else
      text += fmt::format("{}: {} bytes, {} {}\n", buffer.name, bytes,
                          buffer.storage == Storage::kInput ? "input" : "output", buffer.index);
  }
  return text + fmt::format("peak {} bytes\n", layout.bytes);
}

}  // namespace weft::runtime
