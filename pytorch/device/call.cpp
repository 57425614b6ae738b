#include "device/call.h"

#include <ATen/MemoryOverlap.h>

#include "device/graph/arguments.h"
#include "device/graph/forms.h"
#include "device/graph/places.h"
#include "device/graph/record.h"
#include "device/graph/shapes.h"
#include "device/graph/storage.h"
#include "device/graph/views.h"
#include "device/kernels/half_kernels.h"
#include "device/kernels/random.h"
#include "device/kernels/sparse.h"
#include "device/run/run.h"
#include "device/run/watched_runs.h"
#include "override/state.h"
#include "record/recording.h"
#include "record/recording_internal.h"

namespace weft::device {

using c10::IValue;
using record::ResultShape;
using record::ResultShapes;
using torch::jit::Stack;
using Kind = Operator::Kind;
using Slot = Operator::Slot;

void put_one(Stack& stack, size_t arguments, IValue result) {
  torch::jit::drop(stack, arguments);
  stack.push_back(std::move(result));
}

void put(Stack& stack, size_t arguments, Stack results) {
  torch::jit::drop(stack, arguments);
  stack.insert(stack.end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
}

namespace {

/// Records the call. `form`: that of earlier calls with such arguments, if there is one. Else `types` gives the types
/// of the results.
template <typename Types>
NodeRef record_as(FormRef form, const Operator& op, at::ArrayRef<IValue> arguments, Types types) {
  if (form) return record(std::move(form), take_operands(op, arguments));
  Given given = take(op, arguments);
  form = form_of(op, std::move(given.arguments), given.operands, types());
  remember_form(op, arguments, form);
  return record(std::move(form), std::move(given.operands));
}

/// The results of an operation that returns none of its arguments.
Results all_results(const std::shared_ptr<const ResultShapes>& shapes) { return {shapes, &shapes->all}; }

/// The results that are not arguments.
std::vector<ResultShape> flat(const ResultShapes& shapes, const Operator& op) {
  std::vector<ResultShape> all;
  for (size_t i = 0; i < shapes.results.size(); ++i)
    if (!op.traits.returns[i].is_argument) all.insert(all.end(), shapes.results[i].begin(), shapes.results[i].end());
  return all;
}

at::Tensor tensor_for(const NodeRef& node, uint32_t result) {
  const ResultShape& shape = node->results()[result];
  if (!shape.is_defined) return {};
  if (c10::multiply_integers(shape.sizes) == 0) return make_tensor(shape.dtype, shape.sizes, shape.strides);
  return make_tensor(result_of(node, result, shape.dtype, shape.sizes), shape.strides);
}

// ---- operations that give new tensors

Stack results_of(const Operator& op, const ResultShapes& shapes, const NodeRef& node) {
  Stack results;
  uint32_t next = 0;
  for (size_t i = 0; i < shapes.results.size(); ++i) {
    if (op.traits.returns[i].is_argument) continue;
    if (!shapes.is_list[i]) {
      results.emplace_back(tensor_for(node, next++));
      continue;
    }
    std::vector<at::Tensor> tensors;
    for (size_t n = 0; n < shapes.results[i].size(); ++n) tensors.push_back(tensor_for(node, next++));
    results.emplace_back(std::move(tensors));
  }
  return results;
}

}  // namespace

void record_new(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  auto [shapes, form] = known_call(op, arguments);
  const NodeRef node = record_as(std::move(form), op, arguments, [&shapes = shapes] { return all_results(shapes); });
  if (shapes->results.size() == 1 && !shapes->is_list[0]) return put_one(stack, op.arguments(), tensor_for(node, 0));
  put(stack, op.arguments(), results_of(op, *shapes, node));
}

namespace {

// ---- views

at::Tensor view_like(const at::Tensor& base, const ViewShape& shape) {
  at::Tensor view = make_view(base, shape.dtype, shape.sizes, shape.strides, shape.offset);
  if (shape.is_conj) view._set_conj(true);
  if (shape.is_neg) view._set_neg(true);
  return view;
}

void show_view(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const auto place = static_cast<size_t>(op.traits.returns[0].argument);
  const at::Tensor base = arguments[place].toTensor();
  // A fake tensor, which comes here while PyTorch traces.
  if (base.storage().device_type() == c10::DeviceType::Meta)
    return op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  const auto shapes = views_of(op, arguments, place);
  if (shapes->results.size() == 1 && !shapes->is_list[0])
    return put_one(stack, op.arguments(), view_like(base, shapes->results[0][0]));
  Stack results;
  for (size_t i = 0; i < shapes->results.size(); ++i) {
    if (!shapes->is_list[i]) {
      results.emplace_back(view_like(base, shapes->results[i][0]));
      continue;
    }
    std::vector<at::Tensor> views;
    for (const ViewShape& shape : shapes->results[i]) views.push_back(view_like(base, shape));
    results.emplace_back(std::move(views));
  }
  put(stack, op.arguments(), std::move(results));
}

/// For transpose_ and the like: the tensor itself becomes the view.
void change_view(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const at::Tensor self = arguments[0].toTensor();
  const auto shapes = views_of(op, arguments, 0);
  const ViewShape& shape = shapes->results[0][0];
  self.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes, shape.strides, shape.offset);
  put(stack, op.arguments(), {self});
}

// ---- operations that change arguments

/// Operations that fill a result and keep its shape, if it has the right number of elements.
constexpr std::string_view kFill[] = {"aten::arange", "aten::range", "aten::linspace", "aten::logspace"};

/// Gives a tensor that takes a result (`out`) the result's shape, which the variant without `out` knows best. Throws
/// UnsupportedError for a tensor that is filled in another shape: PyTorch's functionalization gives it the result's
/// shape.
void resize_for(const Operator& op, const at::Tensor& out, const ResultShape& shape) {
  if (out.sizes() == at::IntArrayRef(shape.sizes)) return;
  const bool fills = std::ranges::find(kFill, op.schema().name()) != std::end(kFill);
  if (fills && out.numel() == c10::multiply_integers(shape.sizes))
    throw record::UnsupportedError("a result of another shape than the tensor that it is written to");
  resize(out, shape.sizes, shape.strides);
}

ValueRef shaped(const ValueRef& value, const at::Tensor& written) {
  if (c10::multiply_integers(value->sizes) == written.numel()) return record_reshape(value, written.sizes());
  return record_expand(value, written.sizes());
}

/// Throws in PyTorch's words if `written` shares some but not all elements with another argument.
void check_overlap(const at::Tensor& written, at::ArrayRef<IValue> arguments) {
  for (const IValue& argument : arguments) {
    if (!argument.isTensor()) continue;
    const at::Tensor& tensor = argument.toTensor();
    if (is_on_device(tensor) && !tensor.is_same(written)) at::assert_no_partial_overlap(written, tensor);
  }
}

/// The tensors that the operation writes to. Resizes those whose shape it changes. `plain`: the result types of the
/// variant that returns new tensors; empty if there is no such variant.
std::vector<at::Tensor> written_by(const Operator& op, at::ArrayRef<IValue> arguments, const ResultShapes& shapes,
                                   at::ArrayRef<ResultShape> plain) {
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!op.traits.writes[i] || arguments[i].isNone()) continue;
    if (!arguments[i].isTensor()) throw record::UnsupportedError("a list of tensors that the operation writes to");
    const at::Tensor& tensor = arguments[i].toTensor();
    if (!tensor.defined()) continue;
    check_on_device(tensor, op.schema().name());
    if (op.is_pointwise) check_overlap(tensor, arguments);
    if (!plain.empty() && op.schema().arguments()[i].is_out()) {
      resize_for(op, tensor, plain[written.size()]);
    } else {
      for (const auto& [argument, shape] : shapes.resized)
        if (argument == i) resize_for(op, tensor, shape);
    }
    written.push_back(tensor);
  }
  return written;
}

/// The operation's results: where it returns an argument, the argument itself, else the next of `own`.
Stack with_arguments(const Operator& op, at::ArrayRef<IValue> arguments, Stack own) {
  Stack results;
  size_t next = 0;
  for (const auto& result : op.traits.returns)
    results.push_back(result.is_argument ? arguments[static_cast<size_t>(result.argument)] : own[next++]);
  return results;
}

/// Records the variant that gives new tensors, whose values the written arguments then take.
void record_plain(const Operator& op, const ResultShapes& shapes, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const Operator& plain = operator_of(*op.plain);
  const auto given_to_plain = arguments.slice(0, plain.arguments());
  auto [plain_shapes, form] = known_call(plain, given_to_plain);
  const Results types = all_results(plain_shapes);
  const std::vector<at::Tensor> written = written_by(op, arguments, shapes, *types);
  for (size_t i = 0; i < written.size(); ++i)
    TORCH_CHECK(c10::canCast((*types)[i].dtype, written[i].scalar_type()), "result type ", (*types)[i].dtype,
                " can't be cast to the desired output type ", written[i].scalar_type());
  const NodeRef node = record_as(std::move(form), plain, given_to_plain, [&] { return Results(types); });
  for (uint32_t i = 0; i < written.size(); ++i) {
    const ResultShape& shape = (*types)[i];
    const ValueRef value = record_cast(result_of(node, i, shape.dtype, shape.sizes), written[i].scalar_type());
    write(written[i], shaped(value, written[i]));
  }
  put(stack, op.arguments(), with_arguments(op, arguments, {}));
}

void record_change(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  auto [shapes, form] = known_call(op, arguments);
  if (op.plain) return record_plain(op, *shapes, stack);
  const std::vector<at::Tensor> written = written_by(op, arguments, *shapes, {});
  auto types = std::make_shared<std::vector<ResultShape>>(flat(*shapes, op));
  const size_t first = types->size();
  for (const at::Tensor& tensor : written) {
    ResultShape& type = types->emplace_back();
    type.dtype = tensor.scalar_type();
    type.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  }
  const NodeRef node = record_as(std::move(form), op, arguments, [&] { return std::move(types); });
  Stack own = results_of(op, *shapes, node);
  for (size_t i = 0; i < written.size(); ++i)
    write(written[i], result_of(node, static_cast<uint32_t>(first + i), written[i].scalar_type(), written[i].sizes()));
  put(stack, op.arguments(), with_arguments(op, arguments, std::move(own)));
}

}  // namespace

// ---- operations that run at once

namespace {

/// A result of the CPU's kernel, for the device.
IValue to_device(const IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || !tensor.device().is_cpu()) return value;
    if (tensor.layout() != at::kStrided) return sparse_to_device(tensor);
    at::Tensor made = make_tensor(tensor.scalar_type(), tensor.sizes(), tensor.strides());
    if (tensor.numel() > 0) write(made, snapshot(tensor));
    return made;
  }
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& each : value.toTensorVector()) tensors.push_back(to_device(each).toTensor());
    return tensors;
  }
  return value;
}

/// Holds copies of the tensors that the operation writes to, and writes the copies' contents back.
class Copies {
 public:
  Copies(const Operator& op, at::ArrayRef<IValue> arguments, Stack& call) : op_(op) {
    for (size_t i = 0; i < call.size(); ++i) {
      if (!op.traits.writes[i]) continue;
      if (call[i].isTensor() && call[i].toTensor().defined()) {
        call[i] = copy(arguments[i].toTensor(), call[i].toTensor());
      } else if (call[i].isTensorList()) {
        std::vector<at::Tensor> copies;
        const auto originals = arguments[i].toTensorVector(), tensors = call[i].toTensorVector();
        for (size_t n = 0; n < tensors.size(); ++n) copies.push_back(copy(originals[n], tensors[n]));
        call[i] = std::move(copies);
      }
    }
  }

  void write_back() {
    for (auto& [tensor, copied] : copies_) {
      if (tensor.layout() != at::kStrided) {
        write_sparse(tensor, copied);
        continue;
      }
      if (tensor.sizes() != copied.sizes()) resize(tensor, copied.sizes(), copied.strides());
      write(tensor, snapshot(copied));
    }
  }

 private:
  at::Tensor copy(const at::Tensor& tensor, const at::Tensor& on_cpu) {
    check_on_device(tensor, op_.schema().name());
    copies_.emplace_back(tensor, on_cpu.clone());
    return copies_.back().second;
  }

  const Operator& op_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

}  // namespace

void run_now(const Operator& op, Stack& stack) {
  const Asking asking(op.schema().name());
  const Stack given(stack.end() - static_cast<std::ptrdiff_t>(op.arguments()), stack.end());
  Stack call = on_cpu(op, given);
  Copies copies(op, given, call);
  {
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    call_on_cpu(op, call);
  }
  copies.write_back();
  Stack own;
  for (size_t i = 0; i < call.size(); ++i)
    if (!op.traits.returns[i].is_argument) own.push_back(to_device(call[i]));
  put(stack, op.arguments(), with_arguments(op, given, std::move(own)));
}

namespace {

bool has_shape_of_values(const Operator& op, at::ArrayRef<IValue> arguments) {
  if (op.schema().name() != "aten::index") return true;
  for (const IValue& index : arguments[1].toListRef()) {
    if (index.isNone() || !index.toTensor().defined()) continue;
    const auto dtype = index.toTensor().scalar_type();
    if (dtype == at::kBool || dtype == at::kByte) return true;
  }
  return false;
}

/// Throws if an argument is on another device, as recording does.
void check_devices(const Operator& op, at::ArrayRef<IValue> arguments) {
  take(op, arguments);
  for (size_t i = 0; i < arguments.size(); ++i)
    if (op.traits.writes[i] && arguments[i].isTensor() && arguments[i].toTensor().defined())
      check_on_device(arguments[i].toTensor(), op.schema().name());
}

void record_or_run(const Operator& op, Stack& stack, void (*recording)(const Operator&, Stack&)) {
  std::string reason;
  try {
    return recording(op, stack);  // the stack changes last
  } catch (const c10::NotImplementedError&) {
    reason = "PyTorch does not tell the shape of its result";
  } catch (const record::UnsupportedError& error) {
    reason = error.what();
  } catch (const RefusedError&) {  // the error may differ from call to call
    check_devices(op, torch::jit::last(stack, op.arguments()));
    reason = "its Meta kernel, or the CPU's kernel on zeros and ones, refuses arguments that the CPU's kernel takes";
  }
  run_now(op, stack);
  const std::string name = op.schema().name() + ": ";
  override_kernels::report_fallback("device weft", reason.starts_with(name) ? reason : name + reason);
}

}  // namespace

void record_or_run_new(const Operator& op, Stack& stack) { record_or_run(op, stack, record_new); }

namespace {

/// Whether the call asks for a result on another device.
bool is_for_elsewhere(const Operator& op, const Stack& stack) {
  if (!op.takes_device) return false;
  const auto arguments = torch::jit::last(stack, op.arguments());
  for (size_t i = 0; i < op.slots.size(); ++i)
    if (op.slots[i] == Slot::kDevice && arguments[i].isDevice()) {
      const c10::Device device = arguments[i].toDevice();
      TORCH_CHECK(!device.is_privateuseone() || device.index() <= 0, "weft: there is one device, weft:0, but got ",
                  device);
      return !device.is_privateuseone();
    }
  return false;
}

void run_elsewhere(const Operator& op, Stack& stack) {
  const Asking asking("aten::copy_");
  const auto arguments = torch::jit::last(stack, op.arguments());
  Stack call = on_cpu(op, arguments);
  for (size_t i = 0; i < op.slots.size(); ++i)
    if (op.slots[i] == Slot::kDevice) call[i] = arguments[i];
  op.handle.callBoxed(&call);
  put(stack, op.arguments(), std::move(call));
}

}  // namespace

void call_not_dense(const c10::OperatorHandle& handle, Stack& stack) {
  const Operator& op = operator_of(handle);
  if (is_for_elsewhere(op, stack)) return run_elsewhere(op, stack);
  if (op.arguments() == 1)
    if (at::Tensor part = part_of_sparse(op.schema().name(), torch::jit::last(stack, 1)[0].toTensor()); part.defined())
      return put(stack, 1, {std::move(part)});
  // The CPU's kernel reads memory that the forward kernel leaves unwritten if it is called below autograd, as it is
  // here.
  TORCH_CHECK_NOT_IMPLEMENTED(op.schema().name() != "aten::_sparse_mm_reduce_impl_backward",
                              "weft: torch.sparse.mm with a reduction has no gradient on device weft");
  override_kernels::report_fallback("device weft", op.schema().name() + ": a tensor that is not dense");
  run_now(op, stack);
}

void call(const c10::OperatorHandle& handle, Stack& stack) {
  const Operator& op = operator_of(handle);
  if (is_for_elsewhere(op, stack)) return run_elsewhere(op, stack);
  switch (op.kind) {
    case Kind::kOwn:
      return op.function(op, stack);
    case Kind::kComposite:
      return handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, stack);
    case Kind::kDraws:
      return draw(op, stack);
    case Kind::kView:
      return show_view(op, stack);
    case Kind::kViewInPlace:
      return change_view(op, stack);
    case Kind::kWrites:
      return record_or_run(op, stack, record_change);
    case Kind::kRecorded:
      return record_or_run_new(op, stack);
    case Kind::kReads:
      if (!has_shape_of_values(op, torch::jit::last(stack, op.arguments()))) return record_or_run_new(op, stack);
      count_run_now(op);
      return run_now(op, stack);
  }
}

}  // namespace weft::device
