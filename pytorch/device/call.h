#pragma once

#include "device/operators.h"

namespace weft::device {

/// The device's kernel of every operation: records it, or does what it asks for. Throws what PyTorch throws for wrong
/// arguments, at once.
void call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// The same where an operand is sparse: runs at once, and is counted.
void call_not_dense(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Runs what is pending and the operation, on the CPU.
void run_now(const Operator& op, torch::jit::Stack& stack);
/// Records the operation, whose results are new tensors.
void record_new(const Operator& op, torch::jit::Stack& stack);

/// Records it, or runs it at once where it can't be recorded, which is counted.
void record_or_run_new(const Operator& op, torch::jit::Stack& stack);

/// Replaces the arguments on the stack by results.
void put(torch::jit::Stack& stack, size_t arguments, torch::jit::Stack results);

/// Gives the tensor other sizes, and its storage as many bytes as these need, as out= does.
void resize(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides);

}  // namespace weft::device
