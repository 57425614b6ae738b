#include "operator/output_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <memory>
#include <new>

#include "runtime/arena.h"

namespace weft::torch_operator {
namespace {

/// PyTorch's allocator keeps smaller ones itself.
constexpr size_t kFromArena = size_t{128} << 10;

void give_back(void* memory) {
  const std::unique_ptr<runtime::Arena::Block> block(static_cast<runtime::Arena::Block*>(memory));
  c10::profiledCPUMemoryReporter().Delete(block->data());
}

class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes >= kFromArena) {
      try {
        auto block = std::make_unique<runtime::Arena::Block>(
            runtime::process_arena().acquire_close(static_cast<int64_t>(bytes)));
        void* data = block->data();
        c10::profiledCPUMemoryReporter().New(data, bytes);  // torch.profiler(profile_memory=True)
        return {data, block.release(), &give_back, c10::Device(c10::DeviceType::CPU)};
      } catch (const std::bad_alloc&) {  // PyTorch's allocator says so in its own words
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
