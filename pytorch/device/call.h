#pragma once

#include "device/kernels/operators.h"

namespace weft::device {

/// The device's kernel of every operation. Records the operation, or carries it out at once. Wrong arguments throw
/// PyTorch's errors, at once.
void call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// The kernel for operations with a sparse operand. Runs them at once, which is counted.
void call_not_dense(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Runs what is pending, then the operation, on the CPU.
void run_now(const Operator& op, torch::jit::Stack& stack);
/// Records the operation, whose results are new tensors.
void record_new(const Operator& op, torch::jit::Stack& stack);

/// Records the operation. If it can't be recorded, runs it at once, and counts the run.
void record_or_run_new(const Operator& op, torch::jit::Stack& stack);

/// put_one() replaces the arguments on the stack by one result, put() by several.
void put_one(torch::jit::Stack& stack, size_t arguments, c10::IValue result);
void put(torch::jit::Stack& stack, size_t arguments, torch::jit::Stack results);

/// Gives the tensor new sizes, and its storage as many bytes as they need, as out= does.
void resize(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides);

}  // namespace weft::device
