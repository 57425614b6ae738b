// The operator weft::call_: a call in which results take the memory of inputs (ir::Donation). It mutates its argument
// `donated`, the inputs that are given up; `inputs` are the others. Both are in the order of the program's inputs. It
// returns the results that take no input's memory.

#include "operator/donated_call.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <algorithm>

#include "base/memory_range.h"
#include "operator/call.h"
#include "operator/program_table.h"

namespace weft::torch_operator {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The range of memory from a tensor's first element to its last.
MemoryRange range_of(const at::Tensor& tensor, bool is_written) {
  if (tensor.numel() == 0) return {};
  // mutable_data_ptr() gives a copy-on-write tensor memory of its own before its place is compared with others.
  const auto* first = static_cast<const std::byte*>(is_written ? tensor.mutable_data_ptr() : tensor.const_data_ptr());
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return {first, first + (last + 1) * static_cast<int64_t>(tensor.element_size()), is_written};
}

/// By input of the program: whether a result takes its memory.
std::vector<bool> donated_inputs(const CallProgram& program) {
  std::vector<bool> is_donated(program.signature().inputs().size());
  for (const ir::Donation& donation : program.program().donations) is_donated[donation.input] = true;
  return is_donated;
}

/// The program's inputs in the program's order, from the donated ones and the others.
Tensors in_order(const CallProgram& program, at::TensorList donated, at::TensorList others) {
  const std::vector<bool> is_donated = donated_inputs(program);
  const size_t count = is_donated.size(), expected = program.program().donations.size();
  check(donated.size() == expected && donated.size() + others.size() == count,
        "weft::call_: program @{} takes {} donated inputs and {} others, but got {} and {}", program.program().name,
        expected, count - expected, donated.size(), others.size());
  Tensors inputs;
  inputs.reserve(count);
  for (size_t i = 0, next = 0, other = 0; i < count; ++i)
    inputs.push_back(is_donated[i] ? donated[next++] : others[other++]);
  return inputs;
}

/// The results that take no input's memory.
Tensors own_results(const CallProgram& program, Tensors results) {
  const auto& donations = program.program().donations;
  for (auto donation = donations.rbegin(); donation != donations.rend(); ++donation)
    results.erase(results.begin() + static_cast<int64_t>(donation->result));
  return results;
}

Tensors call_donating_on_cpu(std::string_view text, at::TensorList donated, at::TensorList others) {
  const ProgramRef ref = find_program(text);
  const CallProgram& program = *ref;
  Tensors inputs = in_order(program, donated, others);
  program.signature().bind(inputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    check(inputs[i].is_cpu(), "weft::call_: input {} '{}' of program @{} must be on the CPU, but is on {}", i,
          program.signature().inputs()[i].name, program.program().name, inputs[i].device().str());
  check_donated("weft::call_", inputs, donated_inputs(program));
  return own_results(program, call_cpu(program, inputs, Donated::kTaken));
}

Tensors call_donating_meta(std::string_view text, at::TensorList donated, at::TensorList others) {
  const ProgramRef ref = find_program(text);
  const CallProgram& program = *ref;
  auto symbols = program.signature().bind_symbolic(in_order(program, donated, others));
  Tensors results;
  auto donation = program.program().donations.begin();
  const auto end = program.program().donations.end();
  const auto& outputs = program.signature().outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (donation != end && donation->result == i)
      ++donation;
    else
      results.push_back(
          at::empty_symint(Signature::sizes(outputs[i], symbols), at::device(at::kMeta).dtype(outputs[i].dtype)));
  }
  return results;
}

Tensors dispatch(std::string_view text, at::TensorList donated, at::TensorList others);

/// Refuses derivatives: with PyTorch's own errors for tensors that may not be changed in place, and with an error for
/// the other tensors.
Tensors call_donating_autograd(std::string_view text, at::TensorList donated, at::TensorList others) {
  if (at::GradMode::is_enabled()) {
    for (const at::Tensor& tensor : donated) torch::autograd::check_inplace(tensor, tensor.requires_grad());
    for (const at::TensorList tensors : {donated, others})
      for (const at::Tensor& tensor : tensors)
        check(!tensor.requires_grad(),
              "weft::call_: has no derivative, but one of its inputs requires grad; call it under torch.no_grad()");
  }
  for (const at::TensorList tensors : {donated, others})
    for (const at::Tensor& tensor : tensors)
      check(!tensor._fw_grad(/*level=*/0).defined(),
            "weft::call_: has no derivative, but one of its inputs has a tangent");
  at::AutoDispatchBelowAutograd below;
  return dispatch(text, donated, others);
}

/// Increments versions first, since a call that fails may have written something.
Tensors call_in_place(std::string_view text, at::TensorList donated, at::TensorList others) {
  for (const at::Tensor& tensor : donated) torch::autograd::increment_version(tensor);
  at::AutoDispatchBelowADInplaceOrView below;
  return dispatch(text, donated, others);
}

/// The functional form, for tracing: weft::call, whose results that take inputs' memory become the new values of
/// `donated`.
Tensors call_functionalized(std::string_view text, at::TensorList donated, at::TensorList others) {
  namespace functional = at::functionalization::impl;
  const ProgramRef program = find_program(text);
  auto plain = [](at::TensorList tensors) {
    Tensors result;
    for (const at::Tensor& tensor : tensors) {
      const bool is_wrapped = functional::isFunctionalTensor(tensor);
      if (is_wrapped) functional::sync(tensor);
      result.push_back(is_wrapped ? functional::from_functional_tensor(tensor) : tensor);
    }
    return result;
  };
  const Tensors old = plain(donated), read = plain(others);
  at::AutoDispatchSkipFunctionalize below;
  if (!donated.empty() && !functional::isFunctionalTensor(at::ITensorListRef(donated)))
    return dispatch(text, old, read);
  Tensors results = call(program, in_order(*program, old, read));
  const std::vector<bool> is_donated = donated_inputs(*program);
  for (const ir::Donation& donation : program->program().donations) {
    const auto number = std::count(is_donated.begin(), is_donated.begin() + static_cast<int64_t>(donation.input), true);
    const at::Tensor& tensor = donated[static_cast<size_t>(number)];
    functional::replace_(tensor, results[donation.result]);
    functional::commit_update(tensor);
    functional::sync(tensor);
  }
  return functional::to_functional_tensor(own_results(*program, std::move(results)));
}

}  // namespace

void check_donated(const char* what, at::TensorList inputs, const std::vector<bool>& is_donated) {
  std::vector<MemoryRange> ranges;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check(!is_donated[i] || (inputs[i].is_contiguous() && !inputs[i].is_neg()),
          "{}: input {} is donated, so it must be contiguous, but it has sizes {} and strides {}", what, i,
          c10::str(inputs[i].sizes()), c10::str(inputs[i].strides()));
    ranges.push_back(range_of(inputs[i], is_donated[i]));
  }
  if (auto overlap = find_overlap(ranges)) {
    auto [donated, other] = *overlap;
    if (!is_donated[donated]) std::swap(donated, other);
    user_error("{}: input {} is donated, but input {} shares memory with it", what, donated, other);
  }
}

}  // namespace weft::torch_operator

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("call_(str program, Tensor(a!)[] donated, Tensor[] inputs) -> Tensor[]", {at::Tag::pt2_compliant_tag});
}

namespace weft::torch_operator {
namespace {

/// Looked up at load time (base/fork.h), right after its definition.
const auto& donating_call = *new auto(c10::Dispatcher::singleton()
                                          .findSchemaOrThrow("weft::call_", "")
                                          .typed<Tensors(std::string_view, at::TensorList, at::TensorList)>());

Tensors dispatch(std::string_view text, at::TensorList donated, at::TensorList others) {
  return donating_call.call(text, donated, others);
}

}  // namespace
}  // namespace weft::torch_operator

TORCH_LIBRARY_IMPL(weft, CPU, m) { m.impl("call_", weft::torch_operator::call_donating_on_cpu); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("call_", weft::torch_operator::call_donating_meta); }
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("call_", weft::torch_operator::call_donating_on_cpu); }
TORCH_LIBRARY_IMPL(weft, Functionalize, m) { m.impl("call_", weft::torch_operator::call_functionalized); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("call_", weft::torch_operator::call_donating_autograd); }
TORCH_LIBRARY_IMPL(weft, ADInplaceOrView, m) { m.impl("call_", weft::torch_operator::call_in_place); }
