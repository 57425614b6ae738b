// The types of operations' results, found by PyTorch's Meta kernels and found again by the types of the arguments.

#include "device/graph/shapes.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>

#include "device/graph/arguments.h"
#include "device/graph/history_table.h"
#include "device/run/interruption.h"
#include "device/run/program_argument.h"
#include "record/argument_words.h"
#include "record/aside.h"
#include "record/recording_internal.h"

namespace weft::device {

using c10::IValue;
using record::ResultShapes;
using torch::jit::Stack;

namespace {

/// A key of shapes that collects the numbers among the arguments, in which calls of one key may differ.
class CallKey : public record::ShapeKey {
 public:
  using ShapeKey::ShapeKey;

  c10::SmallVector<int64_t, 2> numbers;  ///< floating-point ones as bits
  bool has_all_numbers = true;

  void wrapped_size(int64_t number) { numbers.push_back(number); }
  void number(double number) {
    numbers.push_back(std::bit_cast<int64_t>(number));
    ShapeKey::number(number);
  }
  void tensor(const at::Tensor& tensor) {
    ShapeKey::tensor(tensor);
    if (!tensor.defined() || !is_number(tensor)) return;
    if (tensor.scalar_type() == at::kDouble)
      numbers.push_back(std::bit_cast<int64_t>(*tensor.const_data_ptr<double>()));
    else if (tensor.scalar_type() == at::kLong)
      numbers.push_back(*tensor.const_data_ptr<int64_t>());
    else if (tensor.scalar_type() == at::kBool)
      numbers.push_back(static_cast<int64_t>(*tensor.const_data_ptr<bool>()));
    else
      has_all_numbers = false;
  }
};

/// The operation with its arguments' types, under which shapes are found again.
CallKey key_of(const Operator& op, at::ArrayRef<IValue> arguments, std::vector<int64_t>& words) {
  // The operation's number is negative here, so that this key differs from all keys of the recorder.
  CallKey key(words, -op.traits.name, !op.is_made_of_numbers);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (op.slots[i] == Operator::Slot::kProgram) {
      key.fixed(program_argument(program_argument(arguments[i].toStringView())).number);
    } else {
      record::spell(arguments[i], key);
    }
  }
  return key;
}

/// Adds where the tensor lies in its storage, which the types of its views depend on.
void add_place(record::ShapeKey& key, const at::Tensor& tensor) {
  key.fixed(tensor.storage_offset());
  key.fixed(static_cast<int64_t>(tensor.storage().nbytes()));
  key.fixed((tensor.is_conj() ? 1 : 0) + (tensor.is_neg() ? 2 : 0));
}

IValue filled_like(const IValue& argument, int value) {
  if (argument.isTensor()) {
    const at::Tensor& tensor = argument.toTensor();
    if (!tensor.defined() || is_number(tensor)) return argument;
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type()).fill_(value);
  }
  if (argument.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& each : argument.toTensorVector()) tensors.push_back(filled_like(each, value).toTensor());
    return tensors;
  }
  if (argument.isList()) {
    auto list = argument.toList();
    c10::impl::GenericList copy(list.elementType());
    for (const IValue& item : list) copy.push_back(filled_like(item, value));
    return copy;
  }
  if (argument.isDevice()) return c10::Device(c10::kCPU);
  return argument;
}

/// Drops the warnings of a trial, which are not the user's.
struct NoWarnings : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

/// The results of the CPU's kernel for tensors filled with a number.
Stack tried_on_cpu(const Operator& op, at::ArrayRef<IValue> arguments, int value) {
  const record::Aside aside;
  NoWarnings none;
  const c10::WarningUtils::WarningHandlerGuard silent(&none);
  Stack call;
  for (const IValue& argument : arguments) call.push_back(filled_like(argument, value));
  op.handle.callBoxed(&call);
  return call;
}

/// Corrects the types by what the CPU's kernel gives for zeros.
void correct(const Operator& op, at::ArrayRef<IValue> arguments, ResultShapes& shapes) {
  Stack results;
  try {
    results = tried_on_cpu(op, arguments, 0);
  } catch (const c10::Error&) {
    return;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].isTensor() || !results[i].toTensor().defined()) continue;
    const at::Tensor& tensor = results[i].toTensor();
    record::ResultShape& shape = shapes.results[i][0];
    shape.dtype = tensor.scalar_type();
    shape.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    shape.strides.assign(tensor.strides().begin(), tensor.strides().end());
  }
  shapes.all.clear();
  for (const auto& found : shapes.results) shapes.all.insert(shapes.all.end(), found.begin(), found.end());
}

int64_t elements_of(const IValue& argument) {
  if (argument.isTensor()) return argument.toTensor().defined() ? argument.toTensor().numel() : 0;
  int64_t elements = 0;
  if (argument.isTensorList())
    for (const at::Tensor& each : argument.toTensorVector()) elements += each.numel();
  return elements;
}

/// Whether the CPU's kernel can be tried on such tensors: it takes a few microseconds and has no effect but its
/// results.
bool can_be_tried(const Operator& op, at::ArrayRef<IValue> arguments, const ResultShapes& shapes) {
  constexpr int64_t kMostElements = 1 << 14;
  if (op.handle.hasTag(at::Tag::nondeterministic_seeded) || !op.schema().name().starts_with("aten::")) return false;
  int64_t elements = 0;
  for (const IValue& argument : arguments) elements += elements_of(argument);
  for (const auto& result : shapes.all) elements += c10::multiply_integers(result.sizes);
  return elements <= kMostElements;
}

/// Runs the CPU's kernel on zeros, or else on ones, for its errors. Most of PyTorch's checks are in the Meta kernel,
/// but some are only in the CPU's kernel: of dtypes, of what is assigned to an index. If such an error came when the
/// batch runs, it would come far from the line that is wrong. A kernel that takes neither zeros nor ones may still take
/// the actual values.
void try_small_case(const Operator& op, at::ArrayRef<IValue> arguments) {
  for (const int value : {0, 1}) {
    try {
      tried_on_cpu(op, arguments, value);
      return;
    } catch (const c10::LinAlgError&) {  // a singular matrix
      return;
    } catch (const c10::Error& error) {
      if (value == 1) throw RefusedError(error.what_without_backtrace());
    }
  }
}

ResultShapes shapes_by_meta(const Operator& op, at::ArrayRef<IValue> arguments) {
  try {
    return record::compute_shapes(op.handle, arguments);
  } catch (const c10::NotImplementedError&) {
    throw;
  } catch (const c10::Error& error) {
    throw RefusedError(error.what_without_backtrace());
  } catch (const pybind11::error_already_set& error) {
    if (is_interruption(std::current_exception())) throw;
    throw RefusedError(error.what());
  }
}

/// Gives a new tensor dense strides if the Meta kernel returned an expanded one.
void give_own_memory(record::ResultShape& shape) {
  for (size_t i = 0; i < shape.sizes.size(); ++i)
    if (shape.strides[i] == 0 && shape.sizes[i] > 1) {
      const auto strides = record::dense_strides(shape.sizes);
      shape.strides.assign(strides.begin(), strides.end());
      return;
    }
}

ResultShapes computed_shapes(const Operator& op, at::ArrayRef<IValue> arguments) {
  ResultShapes shapes = shapes_by_meta(op, arguments);
  if (op.differs_from_meta) correct(op, arguments, shapes);
  for (auto& result : shapes.results)
    for (auto& shape : result) give_own_memory(shape);
  for (auto& shape : shapes.all) give_own_memory(shape);
  return shapes;
}

}  // namespace

namespace {

/// The types of results, which all threads share.
std::shared_ptr<const ResultShapes> shared_shapes(const Operator& op, at::ArrayRef<IValue> arguments,
                                                  const std::vector<int64_t>& words) {
  if (auto found = record::known_shapes(words)) return found;
  auto shapes = std::make_shared<const ResultShapes>(computed_shapes(op, arguments));
  if (can_be_tried(op, arguments, *shapes)) try_small_case(op, arguments);
  record::remember_shapes(words, shapes);
  return shapes;
}

/// A thread's last call with arguments of the same types.
struct LastCall {
  std::shared_ptr<const ResultShapes> shapes;
  FormRef form = {};                          ///< null if it was not recorded
  c10::SmallVector<int64_t, 2> numbers = {};  ///< the form's
};

constexpr size_t kMostCalls = 1U << 13U;
thread_local HistoryTable<LastCall> last_calls(kMostCalls);

}  // namespace

KnownCall known_call(const Operator& op, at::ArrayRef<IValue> arguments) {
  const CallKey key = key_of(op, arguments, last_calls.start());
  if (!key.is_complete()) return {std::make_shared<const ResultShapes>(computed_shapes(op, arguments)), {}};
  if (const LastCall* found = last_calls.find()) {
    const bool is_same = found->form && found->form->op == &op && key.has_all_numbers && found->numbers == key.numbers;
    return {found->shapes, is_same ? found->form : FormRef()};
  }
  const std::vector<int64_t> words = key.words();  // a Meta kernel in Python may call this function again
  auto shapes = shared_shapes(op, arguments, words);
  last_calls.add(words, {shapes});
  return {std::move(shapes), {}};
}

std::shared_ptr<const ResultShapes> shapes_of(const Operator& op, at::ArrayRef<IValue> arguments) {
  return known_call(op, arguments).shapes;
}

void remember_form(const Operator& op, at::ArrayRef<IValue> arguments, FormRef form) {
  for (const Operator::Slot slot : op.slots)
    if (slot == Operator::Slot::kProgram) return;  // the form would keep the program alive
  CallKey key = key_of(op, arguments, last_calls.start());
  if (form->number == 0 || !key.is_complete() || !key.has_all_numbers) return;
  LastCall* found = last_calls.find();
  if (found == nullptr) return;
  found->form = std::move(form);
  found->numbers = std::move(key.numbers);
}

namespace {

/// A tensor without data on storage of the same size, with the same view of it.
at::Tensor meta_like(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  at::Tensor meta = at::detail::empty_meta({bytes / static_cast<int64_t>(tensor.element_size())}, tensor.scalar_type());
  meta.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) meta._set_conj(true);
  if (tensor.is_neg()) meta._set_neg(true);
  return meta;
}

ViewShape shape_of(const at::Tensor& meta) {
  ViewShape shape{meta.scalar_type(), {}, {}, meta.storage_offset(), meta.is_conj(), meta.is_neg()};
  shape.sizes.assign(meta.sizes().begin(), meta.sizes().end());
  shape.strides.assign(meta.strides().begin(), meta.strides().end());
  return shape;
}

std::shared_ptr<const ViewShapes> compute_views(const Operator& op, at::ArrayRef<IValue> arguments) {
  Stack call;
  for (const IValue& argument : arguments) {
    const bool is_tensor = argument.isTensor() && argument.toTensor().defined() && !argument.toTensor().is_meta();
    call.push_back(is_tensor ? IValue(meta_like(argument.toTensor())) : argument);
  }
  {
    const record::Aside aside;
    record::call_on_meta(op.handle, call);
  }
  auto views = std::make_shared<ViewShapes>();
  for (const IValue& result : call) {
    auto& shapes = views->results.emplace_back();
    views->is_list.push_back(!result.isTensor());
    if (result.isTensor()) {
      shapes.push_back(shape_of(result.toTensor()));
    } else {
      for (const at::Tensor& each : result.toTensorVector()) shapes.push_back(shape_of(each));
    }
  }
  return views;
}

/// The bound of a cache of each thread: looking up a view takes as long as making its tensor.
constexpr size_t kMostViews = 1U << 12U;

}  // namespace

std::shared_ptr<const ViewShapes> views_of(const Operator& op, at::ArrayRef<IValue> arguments, size_t base) {
  thread_local HistoryTable<std::shared_ptr<const ViewShapes>> known(kMostViews);
  CallKey key = key_of(op, arguments, known.start());
  if (!key.is_complete()) return compute_views(op, arguments);
  add_place(key, arguments[base].toTensor());
  if (const auto* found = known.find()) return *found;
  const std::vector<int64_t> words = key.words();  // a Meta kernel in Python may call this function again
  auto views = compute_views(op, arguments);
  known.add(words, views);
  return views;
}

}  // namespace weft::device
