#include "operator/output_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "runtime/memory/arena.h"

namespace weft::torch_operator {
namespace {

/// PyTorch's allocator keeps smaller blocks itself.
constexpr size_t kFromArena = size_t{128} << 10;

/// Up to this size memory comes from malloc, with room to align it. malloc has a list of free blocks for each thread,
/// which posix_memalign, used by PyTorch, doesn't look at.
constexpr size_t kFromMalloc = 2 << 10;

void* aligned(void* block) {
  constexpr uintptr_t kAlignment = c10::gAlignment;
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(block) + kAlignment - 1) & ~(kAlignment - 1));
}

void free_small(void* block) {
  c10::profiledCPUMemoryReporter().Delete(aligned(block));
  std::free(block);
}

void give_back(void* memory) {
  const std::unique_ptr<runtime::Arena::Block> block(static_cast<runtime::Arena::Block*>(memory));
  c10::profiledCPUMemoryReporter().Delete(block->data());
}

class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes > 0 && bytes <= kFromMalloc) {
      if (void* block = std::malloc(bytes + c10::gAlignment - alignof(std::max_align_t))) {
        void* data = aligned(block);
        c10::profiledCPUMemoryReporter().New(data, bytes);
        return {data, block, &free_small, c10::Device(c10::DeviceType::CPU)};
      }
    }
    if (bytes >= kFromArena) {
      try {
        auto block = std::make_unique<runtime::Arena::Block>(
            runtime::process_arena().acquire_close(static_cast<int64_t>(bytes)));
        void* data = block->data();
        c10::profiledCPUMemoryReporter().New(data, bytes);  // torch.profiler(profile_memory=True)
        return {data, block.release(), &give_back, c10::Device(c10::DeviceType::CPU)};
      } catch (const std::bad_alloc&) {  // PyTorch's allocator has an error message of its own
      }
    }
    return c10::GetCPUAllocator()->allocate(bytes);
  }

  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

ArenaAllocator& allocator = *new ArenaAllocator;  // never destroyed: tensors may be freed while the process ends

}  // namespace

at::Tensor empty_output(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::detail::empty_generic(sizes, &allocator, c10::DispatchKeySet(c10::DispatchKey::CPU), dtype, std::nullopt);
}

}  // namespace weft::torch_operator
