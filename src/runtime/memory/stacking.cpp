#include "runtime/memory/stacking.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>

namespace weft::runtime {
namespace {

/// The topmost value at each time, held as pieces of time with one value each.
template <typename T>
class Surface {
 public:
  struct Piece {
    int64_t first, last;
    T value;
  };

  Surface(int64_t times, T ground) : times_(times) { pieces_[0] = ground; }

  /// The pieces that cover the times first..last. Each `put` leaves at most two pieces more than it covers, so all
  /// calls together visit a number of pieces linear in the number of puts.
  const std::vector<Piece>& covered(int64_t first, int64_t last) {
    split(first);
    split(last + 1);
    found_.clear();
    for (auto at = pieces_.find(first); at != pieces_.end() && at->first <= last; ++at) {
      const auto next = std::next(at);
      found_.push_back({at->first, (next == pieces_.end() ? times_ : next->first) - 1, at->second});
    }
    return found_;
  }

  /// Must come after covered() of the same times.
  void put(int64_t first, int64_t last, T value) {
    const auto at = pieces_.find(first);
    at->second = value;
    pieces_.erase(std::next(at), pieces_.lower_bound(last + 1));
  }

 private:
  void split(int64_t time) {
    if (time >= times_) return;
    const auto at = std::prev(pieces_.upper_bound(time));
    if (at->first != time) pieces_.emplace_hint(std::next(at), time, T(at->second));
  }

  int64_t times_;
  std::map<int64_t, T> pieces_;  // by their first time
  std::vector<Piece> found_;
};

/// Memory that is free for some time.
struct Gap {
  int64_t first, last;
  int64_t start, limit;
  bool taken = false;
};

/// Gaps by time, in a segment tree. A gap is listed at the few nodes that cover its time.
class Gaps {
 public:
  explicit Gaps(int64_t times) : leaves_(std::bit_ceil(static_cast<size_t>(times))), nodes_(2 * leaves_) {}

  void add(const Gap& gap) {
    if (gap.first > gap.last || gap.start >= gap.limit) return;
    const auto id = static_cast<uint32_t>(gaps_.size());
    gaps_.push_back(gap);
    size_t from = static_cast<size_t>(gap.first) + leaves_, to = static_cast<size_t>(gap.last) + 1 + leaves_;
    for (; from < to; from /= 2, to /= 2) {
      if (from % 2 == 1) nodes_[from++].push_back(id);
      if (to % 2 == 1) nodes_[--to].push_back(id);
    }
  }

  /// Takes memory from the tightest of the gaps that it looks at: the latest few of each node. Returns the offset, or
  /// -1.
  int64_t take(const Reservation& wanted) {
    Gap* best = nullptr;
    for (size_t node = static_cast<size_t>(wanted.first) + leaves_; node > 0; node /= 2) {
      std::vector<uint32_t>& listed = nodes_[node];
      while (!listed.empty() && gaps_[listed.back()].taken) listed.pop_back();
      const size_t looked_at = std::min(listed.size(), kLookedAt);
      for (size_t i = listed.size() - looked_at; i < listed.size(); ++i) {
        Gap& gap = gaps_[listed[i]];
        const bool fits = !gap.taken && gap.last >= wanted.last && gap.limit - gap.start >= wanted.bytes;
        if (fits && (best == nullptr || gap.limit - gap.start < best->limit - best->start)) best = &gap;
      }
    }
    if (best == nullptr) return -1;
    best->taken = true;
    const Gap gap = *best;
    add({gap.first, wanted.first - 1, gap.start, gap.limit});
    add({wanted.last + 1, gap.last, gap.start, gap.limit});
    add({wanted.first, wanted.last, gap.start + wanted.bytes, gap.limit});
    return gap.start;
  }

 private:
  static constexpr size_t kLookedAt = 8;

  size_t leaves_;
  std::vector<std::vector<uint32_t>> nodes_;
  std::vector<Gap> gaps_;
};

/// The offset of each reservation at its present size, largest first. Of equal sizes the earliest comes first, so that
/// a later one can take the memory of one that has ended. New memory is free at all times: around the life of its first
/// user it leaves one gap before and one gap after.
std::vector<int64_t> place(std::span<const Reservation> all, int64_t times) {
  std::vector<uint32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) {
    return all[a].bytes != all[b].bytes ? all[a].bytes > all[b].bytes : all[a].first < all[b].first;
  });
  Gaps gaps(times);
  std::vector<int64_t> offsets(all.size());
  int64_t end = 0;
  for (uint32_t i : order) {
    offsets[i] = gaps.take(all[i]);
    if (offsets[i] >= 0) continue;
    gaps.add({0, times - 1, end, end + all[i].bytes});
    offsets[i] = gaps.take(all[i]);
    end += all[i].bytes;
  }
  return offsets;
}

}  // namespace

Stacking stack(std::span<const Reservation> reservations) {
  constexpr uint32_t kGround = std::numeric_limits<uint32_t>::max();
  int64_t times = 1;
  for (const Reservation& reservation : reservations) times = std::max(times, reservation.last + 1);
  const std::vector<int64_t> offsets = place(reservations, times);
  Stacking result;
  result.order.resize(reservations.size());
  std::iota(result.order.begin(), result.order.end(), 0);
  std::ranges::stable_sort(result.order, {}, [&](uint32_t i) { return offsets[i]; });
  Surface<uint32_t> tops(times, kGround);
  for (uint32_t i : result.order) {
    const auto [bytes, first, last] = reservations[i];
    for (const auto& piece : tops.covered(first, last))
      if (piece.value != kGround) result.below.push_back(piece.value);
    tops.put(first, last, i);
    result.begin.push_back(static_cast<uint32_t>(result.below.size()));
  }
  result.begin.insert(result.begin.begin(), 0);
  return result;
}

int64_t Stacking::offsets(std::span<const int64_t> bytes, std::span<int64_t> offsets) const {
  int64_t end = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t offset = 0;
    for (uint32_t k = begin[i]; k < begin[i + 1]; ++k) offset = std::max(offset, offsets[below[k]] + bytes[below[k]]);
    offsets[order[i]] = offset;
    end = std::max(end, offset + bytes[order[i]]);
  }
  return end;
}

}  // namespace weft::runtime
