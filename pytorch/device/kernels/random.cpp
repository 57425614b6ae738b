#include "device/kernels/random.h"

#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones.h>

#include "device/call.h"
#include "device/graph/arguments.h"
#include "device/graph/record.h"
#include "device/graph/storage.h"
#include "device/graph/views.h"
#include "device/kernels/generator.h"
#include "device/run/run.h"

namespace weft::device {

using c10::IValue;
using torch::jit::Stack;
using Slot = Operator::Slot;

namespace {

/// Whether the operation fills a tensor regardless of its contents, as uniform_ does.
bool is_fill(const Operator& op) {
  const std::string& name = op.schema().name();
  const auto& arguments = op.schema().arguments();
  if (!name.ends_with('_') || !op.traits.writes[0]) return false;
  for (size_t i = 1; i < arguments.size(); ++i)
    if (op.slots[i] == Slot::kTensor) return false;
  return true;
}

/// An empty tensor with the tensor's order in memory, since the kernels draw in that order.
at::Tensor empty_in_order_of(const at::Tensor& tensor) {
  return dense_sizes(tensor.sizes(), tensor.strides())
             ? at::empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type())
             : at::empty(tensor.sizes(), tensor.scalar_type());
}

void fill(const Operator& op, Stack& stack) {
  const size_t count = op.arguments();
  Stack call(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  const at::Tensor tensor = call[0].toTensor();
  TORCH_CHECK(is_on_device(tensor), "Expected a '", tensor.device().type(),
              "' device type for generator but found 'weft'");
  // Gaps in the tensor's memory are kept too: the kernels draw in another way where there are gaps.
  const at::Tensor drawn = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  call[0] = drawn;
  for (size_t i = 0; i < count; ++i)
    if (op.slots[i] == Slot::kGenerator) call[i] = generator_on_cpu(call[i]);
  op.handle.callBoxed(&call);
  write(tensor, known(drawn.contiguous()));
  count_bytes(drawn.nbytes());
  put(stack, count, {tensor});
}

bool has_operands(const Operator& op, at::ArrayRef<IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i)
    if (op.slots[i] == Slot::kTensor || op.slots[i] == Slot::kTensors) return true;
  return false;
}

/// rand_like and the like, for which only the type of their operand matters.
bool is_like(const Operator& op) { return op.schema().name().ends_with("_like"); }

void draw_like(const Operator& op, Stack& stack) {
  const size_t count = op.arguments();
  Stack call(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  const at::Tensor like = call[0].toTensor();
  call[0] = at::empty_strided(like.sizes(), like.strides(), like.scalar_type());
  for (size_t i = 0; i < count; ++i) {
    if (op.slots[i] == Slot::kDevice && call[i].isDevice()) call[i] = c10::Device(c10::kCPU);
    if (op.slots[i] == Slot::kGenerator) call[i] = generator_on_cpu(call[i]);
  }
  op.handle.callBoxed(&call);
  const at::Tensor drawn = call[0].toTensor();
  count_bytes(drawn.nbytes());
  at::Tensor made = make_tensor(drawn.scalar_type(), drawn.sizes(), drawn.strides());
  if (drawn.numel() > 0) write(made, known(drawn.contiguous()));
  put(stack, count, {made});
}

}  // namespace

void draw(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  if (is_fill(op)) return fill(op, stack);
  if (is_like(op) && has_operands(op, arguments)) return draw_like(op, stack);
  run_now(op, stack);
}

void native_dropout(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const at::Tensor x = arguments[0].toTensor();
  const double p = arguments[1].toDouble();
  const bool train = arguments[2].isNone() || arguments[2].toBool();
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (!train || p == 0) {
    put(stack, op.arguments(), {x.clone(), make_tensor(known(at::ones(x.sizes(), at::kBool)), x.strides())});
    return;
  }
  const at::Tensor kept = empty_in_order_of(x);
  kept.bernoulli_(1 - p);
  count_bytes(kept.nbytes());
  at::Tensor noise = make_tensor(kept.scalar_type(), kept.sizes(), kept.strides());
  if (kept.numel() > 0) write(noise, known(kept.contiguous()));
  const at::Tensor scaled = p < 1 ? noise.div(1 - p) : noise;
  put(stack, op.arguments(), {x.mul(scaled), noise.to(at::kBool)});
}

}  // namespace weft::device
