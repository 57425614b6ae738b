#include "runtime/memory/arena_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/target.h"

namespace weft::runtime {
namespace {

constexpr int64_t kHostedFrom = 1 << 20;  // smaller buffers are better kept together, where the caches know them

/// The most buffers that are placed anew at each new size. First fit compares each buffer with all others: 10 us for
/// 128.
constexpr size_t kFew = 128;

/// Of many buffers, only the kMostHosted largest are tried in the kMostHosts largest outputs. All others lie in the
/// arena.
constexpr size_t kMostHosted = 64, kMostHosts = 8;

/// Whether other buffers may lie in this output's memory until it is written. An output in an input's memory can host
/// none, since it holds the input until then.
bool is_host(const BufferPlan& buffer) { return buffer.storage == Storage::kOutput && buffer.donor < 0; }

/// The buffers placed in the arena, or in an output's memory until the output is written.
class Space {
 public:
  Space(const std::vector<Life>& lives, ArenaLayout& layout) : lives_(lives), layout_(layout) {}
  Space(const Plan& plan, const std::vector<Life>& lives, ArenaLayout& layout, size_t output,
        const std::vector<int64_t>& symbol_values)
      : lives_(lives),
        layout_(layout),
        output_(static_cast<int64_t>(output)),
        written_(lives[output].first),
        room_(plan.buffers[output].elements.evaluate(symbol_values) * plan.buffers[output].element_size) {}

  /// Places the buffer by first fit. False where there is no room, or the output is written before the buffer's last
  /// stage.
  bool add(size_t buffer, int64_t bytes) {
    if (lives_[buffer].last >= written_) return false;
    int64_t offset = 0;
    for (const Placed& other : placed_) {
      if (!lives_[buffer].meets(lives_[other.buffer])) continue;
      if (offset + bytes <= other.offset) break;
      offset = std::max(offset, other.offset + other.bytes);
    }
    if (offset + bytes > room_) return false;
    layout_.offsets[buffer] = offset;
    layout_.hosts[buffer] = output_;
    end_ = std::max(end_, offset + bytes);
    placed_.insert(std::ranges::upper_bound(placed_, offset, {}, &Placed::offset), {buffer, offset, bytes});
    return true;
  }

  int64_t end() const { return end_; }

 private:
  struct Placed {
    size_t buffer;
    int64_t offset, bytes;
  };

  const std::vector<Life>& lives_;
  ArenaLayout& layout_;
  int64_t output_ = -1;
  int64_t written_ = INT64_MAX;  ///< the stage that writes the output
  int64_t room_ = INT64_MAX;
  int64_t end_ = 0;
  std::vector<Placed> placed_;  ///< by offset
};

/// The buffer's bytes when all symbols have a middling size, to compare buffers by: from 1 to 2^40 an instance, so that
/// thousands add up without overflow.
int64_t middling_bytes(const BufferPlan& buffer) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t bytes = std::min(buffer.elements.factor, kMost) * buffer.element_size;
  for (size_t i = 0; i < buffer.elements.symbols.size() && bytes < kMost; ++i) bytes *= target::kTypicalSize;
  return std::clamp<int64_t>(bytes, 1, kMost) * (buffer.copies + buffer.copies_a_member);
}

}  // namespace

ArenaPlanner::ArenaPlanner(const Plan& plan) : plan_(plan) {
  using Size = std::tuple<int64_t, int64_t, std::vector<int64_t>>;
  std::map<Size, uint32_t> known;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& buffer = plan.buffers[i];
    if (buffer.storage != Storage::kArena) continue;
    const Size size = {buffer.element_size, buffer.elements.factor, buffer.elements.symbols};
    const auto [found, fresh] = known.try_emplace(size, static_cast<uint32_t>(classes_.size()));
    if (fresh) classes_.push_back(i);
    arena_.push_back(i);
    class_of_.push_back(found->second);
  }
  std::set<StageOrder> orders = {StageOrder::kInTurn};
  for (const StagePlan& stage : plan.stages) {
    if (!stage.windows.empty()) orders.insert(StageOrder::kWindows);
    if (!stage.side_by_side.scans.empty()) orders.insert(StageOrder::kSideBySide);
  }
  for (StageOrder order : orders) orders_[order].lives = lives(plan, order);
  if (arena_.size() > kFew) stack_buffers();
}

void ArenaPlanner::stack_buffers() {
  std::vector<Reservation> wanted;
  for (size_t i : arena_) wanted.push_back({middling_bytes(plan_.buffers[i]), 0, 0});
  for (auto& [stages, order] : orders_) {
    for (size_t i = 0; i < arena_.size(); ++i) {
      wanted[i].first = order.lives[arena_[i]].first;
      wanted[i].last = order.lives[arena_[i]].last;
    }
    order.stacking = stack(wanted);
  }
  large_.resize(arena_.size());
  std::iota(large_.begin(), large_.end(), 0);
  std::ranges::stable_sort(large_, std::greater<>(), [&](uint32_t i) { return wanted[i].bytes; });
  large_.resize(kMostHosted);
  for (size_t i = 0; i < plan_.buffers.size(); ++i)
    if (is_host(plan_.buffers[i])) hosts_.push_back(i);
  std::ranges::stable_sort(hosts_, std::greater<>(), [&](size_t i) { return middling_bytes(plan_.buffers[i]); });
  hosts_.resize(std::min(hosts_.size(), kMostHosts));
}

std::vector<int64_t> ArenaPlanner::sizes(const std::vector<int64_t>& symbol_values,
                                         const std::vector<int64_t>& members) const {
  std::vector<int64_t> of_class;
  for (size_t buffer : classes_) of_class.push_back(instance_bytes(plan_.buffers[buffer], symbol_values));
  std::vector<int64_t> bytes(arena_.size());
  for (size_t i = 0; i < arena_.size(); ++i)
    bytes[i] = of_class[class_of_[i]] * instances(plan_.buffers[arena_[i]], members);
  return bytes;
}

ArenaLayout ArenaPlanner::lay_out(const std::vector<int64_t>& symbol_values, bool uses_outputs,
                                  const std::vector<int64_t>& members, const std::vector<BufferBytes>& others,
                                  StageOrder stages) const {
  const Order& order = orders_.at(stages);
  ArenaLayout layout;
  layout.offsets.assign(plan_.buffers.size(), -1);
  layout.hosts.assign(plan_.buffers.size(), -1);
  std::vector<int64_t> bytes = sizes(symbol_values, members);
  for (const auto [buffer, other] : others)
    bytes[static_cast<size_t>(std::ranges::lower_bound(arena_, static_cast<size_t>(buffer)) - arena_.begin())] =
        padded(other);
  if (arena_.size() > kFew)
    place_many(symbol_values, uses_outputs, std::move(bytes), order, layout);
  else
    place_few(symbol_values, uses_outputs, bytes, order.lives, layout);
  return layout;
}

void ArenaPlanner::place_few(const std::vector<int64_t>& symbol_values, bool uses_outputs,
                             const std::vector<int64_t>& bytes, const std::vector<Life>& lives,
                             ArenaLayout& layout) const {
  std::vector<size_t> order(arena_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  Space arena(lives, layout);
  std::vector<Space> outputs;
  for (size_t i = 0; uses_outputs && i < plan_.buffers.size(); ++i)
    if (is_host(plan_.buffers[i])) outputs.emplace_back(plan_, lives, layout, i, symbol_values);
  for (size_t i : order) {
    auto takes = [&](Space& space) { return space.add(arena_[i], bytes[i]); };
    if (bytes[i] < kHostedFrom || std::ranges::none_of(outputs, takes)) takes(arena);
  }
  layout.bytes = arena.end();
}

void ArenaPlanner::place_many(const std::vector<int64_t>& symbol_values, bool uses_outputs, std::vector<int64_t> bytes,
                              const Order& order, ArenaLayout& layout) const {
  std::vector<Space> outputs;
  for (size_t i = 0; uses_outputs && i < hosts_.size(); ++i)
    outputs.emplace_back(plan_, order.lives, layout, hosts_[i], symbol_values);
  for (uint32_t i : large_)
    if (bytes[i] >= kHostedFrom &&
        std::ranges::any_of(outputs, [&](Space& space) { return space.add(arena_[i], bytes[i]); }))
      bytes[i] = 0;
  std::vector<int64_t> offsets(arena_.size());
  layout.bytes = order.stacking.offsets(bytes, offsets);
  for (size_t i = 0; i < arena_.size(); ++i)
    if (layout.hosts[arena_[i]] < 0) layout.offsets[arena_[i]] = offsets[i];
}

namespace {

std::string host_name(const Plan& plan, int64_t host) {
  return host < 0 ? "" : fmt::format(" of output {}", plan.buffers[static_cast<size_t>(host)].index);
}

std::string donor_name(const BufferPlan& buffer) {
  return buffer.donor < 0 ? "" : fmt::format(" in input {}", buffer.donor);
}

}  // namespace

std::string describe(const Plan& plan, const std::vector<int64_t>& symbol_values) {
  const std::vector<int64_t> values = values_of(plan, symbol_values);
  ArenaLayout layout = ArenaPlanner(plan).lay_out(values, true);
  std::string text;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& buffer = plan.buffers[i];
    int64_t bytes = instance_bytes(buffer, values) * buffer.copies;
    if (buffer.storage == Storage::kArena)
      text += fmt::format("{}: {} bytes at {}{}, stages {} to {}\n", buffer.name, bytes, layout.offsets[i],
                          host_name(plan, layout.hosts[i]), buffer.first, buffer.last);
    else if (buffer.storage == Storage::kStep)
      text += fmt::format("{}: {} bytes a step, stages {} to {}\n", buffer.name, bytes, buffer.first, buffer.last);
    else
      text += fmt::format("{}: {} bytes, {} {}{}\n", buffer.name, bytes,
                          buffer.storage == Storage::kInput ? "input" : "output", buffer.index, donor_name(buffer));
  }
  return text + fmt::format("peak {} bytes\n", layout.bytes);
}

}  // namespace weft::runtime
