#pragma once

#include "device/graph/graph.h"

namespace weft::device {

/// Runs what the calling thread has recorded and whose results are still held. Any thread may call it, with or without
/// the GIL; batches of several threads run one after the other.
void sync();

/// The value's tensor, contiguous and on the CPU; nobody may change it. If the value is pending, runs what is pending
/// as sync() does. Throws the error of the operation that should have computed it.
at::Tensor computed(const ValueRef& value);

/// Runs the pending operations if there are more than a batch should hold.
void cut_if_long();
/// Counts memory that only recorded operations keep alive.
void count_bytes(size_t bytes);

/// Sets the most operations that are recorded before they run.
void set_longest_record(int64_t operations);

}  // namespace weft::device
