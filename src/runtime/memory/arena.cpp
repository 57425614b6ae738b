#include "runtime/memory/arena.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <new>

#include "base/division.h"
#include "base/fork.h"
#include "base/settings.h"
#include "base/target.h"

namespace weft::runtime {
namespace {

constexpr int64_t kPage = 4 << 10;
constexpr int64_t kPagedFrom = 64 << 10;
constexpr int64_t kMappedFrom = 1 << 20;
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kHugeFrom = 4 << 20;

/// The capacity of a block for so many bytes: one of four sizes between a power of two and the next. At most a fifth is
/// wasted, and a program whose T changes from call to call still finds its blocks again. 0 for an absurd size.
int64_t capacity_for(int64_t bytes) {
  constexpr int64_t kLeast = 256;
  if (bytes <= kLeast) return kLeast;
  if (bytes > int64_t{1} << 60) return 0;
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes - 1))) / 4;
  return round_up(bytes, step);
}

/// Large blocks are mappings of their own. On the heap they would lie between PyTorch's tensors and fragment it. Pages
/// of a mapping that are never touched cost nothing.
bool is_mapped(int64_t capacity) { return capacity >= kMappedFrom; }

int64_t mapped_size(int64_t capacity) {
  const int64_t page = capacity >= kHugeFrom ? kHugePage : kPage;
  return round_up(capacity, page);
}

std::byte* map(int64_t capacity) {
  const int64_t size = mapped_size(capacity), slack = capacity >= kHugeFrom ? kHugePage : 0;
  void* mapped =
      mmap(nullptr, static_cast<size_t>(size + slack), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* data = static_cast<std::byte*>(mapped);
  if (slack == 0) return data;
  const int64_t before = -reinterpret_cast<intptr_t>(data) & (kHugePage - 1);
  if (before > 0) munmap(data, static_cast<size_t>(before));
  if (before < slack) munmap(data + before + size, static_cast<size_t>(slack - before));
  madvise(data + before, static_cast<size_t>(size), MADV_HUGEPAGE);  // only a hint: it may fail
  return data + before;
}

std::byte* allocate(int64_t capacity) {
  if (is_mapped(capacity)) return map(capacity);
  const int64_t alignment = capacity >= kPagedFrom ? kPage : target::kCacheLine;
  const int64_t size = round_up(capacity, alignment);
  return static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(size)));
}

void give_back(std::byte* data, int64_t capacity) noexcept {
  if (is_mapped(capacity))
    munmap(data, static_cast<size_t>(mapped_size(capacity)));
  else
    std::free(data);
}

}  // namespace

Arena::~Arena() { trim(); }

std::byte* Arena::take(std::map<int64_t, std::vector<std::byte*>>::iterator blocks) {
  std::byte* data = blocks->second.back();
  blocks->second.pop_back();
  idle_bytes_ -= blocks->first;
  if (blocks->second.empty()) idle_.erase(blocks);
  return data;
}

void Arena::drop(std::map<int64_t, std::vector<std::byte*>>::iterator blocks) noexcept {
  const int64_t capacity = blocks->first;
  give_back(take(blocks), capacity);
}

Arena::Block Arena::acquire(int64_t bytes, int64_t most_larger) {
  if (bytes <= 0) return {};
  const int64_t capacity = capacity_for(bytes);
  if (capacity == 0) throw std::bad_alloc();
  {
    const std::lock_guard lock(mutex_);
    const auto found = idle_.lower_bound(capacity);
    if (found != idle_.end() && found->first <= most_larger * capacity) {
      const int64_t larger = found->first;
      return {this, take(found), larger};
    }
    // The new block serves the calls of the next smaller block too, so the smaller block is freed.
    if (found != idle_.begin() && std::prev(found)->first >= kPagedFrom &&
        capacity <= most_larger * std::prev(found)->first)
      drop(std::prev(found));
  }
  std::byte* data = allocate(capacity);
  if (!data) {
    trim();
    data = allocate(capacity);
  }
  if (!data) throw std::bad_alloc();
  return {this, data, capacity};
}

void Arena::release(std::byte* data, int64_t capacity) noexcept {
  const std::lock_guard lock(mutex_);
  if (capacity > limit_) {
    give_back(data, capacity);
    return;
  }
  // Frees the largest blocks first: they fill the limit, and getting them again costs the least per byte.
  while (idle_bytes_ + capacity > limit_) drop(std::prev(idle_.end()));
  try {
    idle_[capacity].push_back(data);
    idle_bytes_ += capacity;
  } catch (const std::bad_alloc&) {  // no memory for the list either
    if (const auto left = idle_.find(capacity); left != idle_.end() && left->second.empty()) idle_.erase(left);
    give_back(data, capacity);
  }
}

int64_t Arena::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

void Arena::trim() {
  const std::lock_guard lock(mutex_);
  for (const auto& [capacity, blocks] : idle_)
    for (std::byte* data : blocks) give_back(data, capacity);
  idle_.clear();
  idle_bytes_ = 0;
}

Arena& process_arena() {
  static Arena& arena = *[] {
    auto* made = new Arena(settings().arena_bytes);  // never destroyed: threads may use it until the end
    hold_across_fork(made->mutex_, LockRank::kArena);
    return made;
  }();
  return arena;
}

namespace {

[[maybe_unused]] const Arena& made_at_load = process_arena();

}  // namespace
}  // namespace weft::runtime
