#include "runtime/memory/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/division.h"
#include "base/error.h"
#include "base/target.h"

namespace weft::runtime {
namespace {

int64_t page_bytes() { return ::sysconf(_SC_PAGESIZE); }

bool is_canary(const std::byte* first, const std::byte* last) {
  return std::all_of(first, last, [](std::byte b) { return b == GuardedMemory::kCanary; });
}

}  // namespace

GuardedMemory::GuardedMemory(int64_t bytes, Side side, int64_t alignment) : bytes_(bytes) {
  const int64_t page = page_bytes();
  inner_ = round_up(bytes, page);
  const auto whole = static_cast<size_t>(inner_ + 2 * page);
  void* mapping = ::mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(mapping);
  std::byte* inner = mapping_ + page;
  if (inner_ > 0 && ::mprotect(inner, static_cast<size_t>(inner_), PROT_READ | PROT_WRITE) != 0) {
    ::munmap(mapping_, whole);
    throw std::bad_alloc();
  }
  std::fill_n(inner, inner_, kCanary);
  data_ = side == Side::kEnd ? inner + inner_ - round_up(bytes, alignment) : inner;
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      inner_(other.inner_),
      data_(other.data_),
      bytes_(other.bytes_) {}

GuardedMemory::~GuardedMemory() {
  if (mapping_) ::munmap(mapping_, static_cast<size_t>(inner_ + 2 * page_bytes()));
}

void GuardedMemory::make_read_only() {
  if (inner_ == 0) return;
  internal_check(::mprotect(mapping_ + page_bytes(), static_cast<size_t>(inner_), PROT_READ) == 0,
                 "mprotect refused: {}", std::strerror(errno));
}

bool GuardedMemory::is_intact() const {
  const std::byte* inner = mapping_ + page_bytes();
  return inner_ == 0 || (is_canary(inner, data_) && is_canary(data_ + bytes_, inner + inner_));
}

GuardedBuffers::GuardedBuffers(const Plan& plan, const std::vector<int64_t>& symbols,
                               const std::vector<int64_t>& members, const std::vector<BufferBytes>& others)
    : plan_(plan) {
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& buffer = plan.buffers[i];
    if (buffer.storage != Storage::kArena) continue;
    auto other = std::ranges::find(others, static_cast<int64_t>(i), &BufferBytes::buffer);
    const bool as_planned = other == others.end();
    const int64_t exact = as_planned ? buffer.elements.evaluate(symbols) * buffer.element_size : other->bytes;
    const int64_t instance = padded(exact), count = as_planned ? instances(buffer, members) : 1;
    placed_.push_back(
        {i, exact, instance, count, GuardedMemory(instance * count, GuardedMemory::Side::kEnd, target::kCacheLine)});
  }
}

void GuardedBuffers::place(std::span<void*> buffers) const {
  for (const Placed& placed : placed_) buffers[placed.buffer] = placed.memory.data();
}

void GuardedBuffers::check() const {
  for (const Placed& placed : placed_) {
    const BufferPlan& buffer = plan_.buffers[placed.buffer];
    internal_check(placed.memory.is_intact(), "the run wrote beside the buffer '{}' of {} bytes", buffer.name,
                   placed.memory.bytes());
    for (int64_t copy = 0; copy < placed.instances; ++copy) {
      const std::byte* start = placed.memory.data() + copy * placed.instance;
      internal_check(is_canary(start + placed.exact, start + placed.instance),
                     "the run wrote past the {} bytes of the buffer '{}'", placed.exact, buffer.name);
    }
  }
}

}  // namespace weft::runtime
