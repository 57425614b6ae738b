#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace weft {

/// A dense row-major tensor that an extern op reads or writes.
struct ExternTensor {
  DType dtype = DType::kF32;
  std::span<const int64_t> sizes;
  void* data = nullptr;  ///< may be null when there are no elements
};

/// Runs what an extern op's `call` names: reads operands, fills results. May throw anything.
using RunExtern = void (*)(std::string_view call, std::span<const ExternTensor> operands,
                           std::span<const ExternTensor> results);

/// Registers the function that runs extern ops; the PyTorch side does so once, as it is loaded.
void set_extern(RunExtern run);

/// Runs an extern op with the registered function. User's error naming the op if there is none.
void run_extern(std::string_view call, std::span<const ExternTensor> operands, std::span<const ExternTensor> results);

/// The operator's name in `call`, without its arguments: "aten.sort.default".
std::string_view extern_name(std::string_view call);

}  // namespace weft
