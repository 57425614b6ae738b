#pragma once

#include <cstdint>

namespace weft::runtime {

/// Scratch memory of the calling thread, aligned to 64 bytes and kept for its next call. Throws std::bad_alloc.
void* thread_scratch(int64_t bytes);

}  // namespace weft::runtime
