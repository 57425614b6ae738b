// The operator weft::call and its kernels for CPU and Meta. The kernel for Autograd is in autograd.cpp, and vmap's rule
// in python/weft/_patches/vmap.py. weft::call_, which takes the memory of inputs, is in donated_call.cpp.

#include "operator/call.h"

#include <atomic>
#include <cstring>
#include <new>
#include <span>

#include "operator/openmp_team.h"
#include "operator/output_memory.h"
#include "operator/program_table.h"
#include "operator/warnings.h"

namespace weft::torch_operator {

using Tensors = std::vector<at::Tensor>;

namespace {
std::atomic<int64_t> calls{0};
}

int64_t calls_so_far() { return calls.load(std::memory_order_relaxed); }

namespace {

runtime::TensorRef reference(const at::Tensor& tensor, DType dtype) {
  // const_data_ptr: a copy-on-write input stays shared. The engine writes to outputs only.
  return {const_cast<void*>(tensor.const_data_ptr()), dtype, {tensor.sizes().data(), tensor.sizes().size()}};
}

[[noreturn]] void wrong_device(const CallProgram& program, const at::Tensor& tensor, size_t input) {
  user_error("weft::call: input {} '{}' of program @{} must be on the CPU, but is on {}", input,
             input < program.signature().inputs().size() ? program.signature().inputs()[input].name : "",
             program.program().name, tensor.device().str());
}

void run_on_team(const CallProgram& program, const std::vector<int64_t>& symbols,
                 std::span<const runtime::TensorRef> inputs, std::span<const runtime::TensorRef> outputs) {
  calls.fetch_add(1, std::memory_order_relaxed);
  try {
    const WarningsWait wait;  // for PyTorch's operations in the program: the team waits for this thread
    OpenMpTeam team;
    program.executable()->run(symbols, inputs, outputs, team);
  } catch (const std::bad_alloc&) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "weft::call: out of memory while running program @",
                     program.program().name);
  }
  deliver_warnings();
}

}  // namespace

Tensors call_cpu(const CallProgram& program, at::TensorList inputs, Donated donated) {
  const Signature& signature = program.signature();
  auto symbols = signature.bind(inputs);

  Tensors copies;  // dense copies of inputs that are not contiguous
  c10::SmallVector<runtime::TensorRef, 24> input_refs, output_refs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    if (!input.is_cpu()) wrong_device(program, input, i);
    const bool is_dense = input.is_contiguous();
    if (!is_dense) copies.push_back(input.contiguous());
    input_refs.push_back(reference(is_dense ? input : copies.back(), signature.inputs()[i].type.dtype));
  }
  Tensors outputs;
  outputs.reserve(signature.outputs().size());
  auto donation = program.program().donations.begin();
  for (const Signature::Tensor& output : signature.outputs()) {
    const bool takes_input = donation != program.program().donations.end() && donation->result == outputs.size();
    const size_t input = takes_input ? donation++->input : 0;
    if (takes_input && donated == Donated::kTaken)
      outputs.push_back(inputs[input]);
    else
      outputs.push_back(empty_output(Signature::sizes(output, symbols), output.dtype));
    output_refs.push_back(reference(outputs.back(), output.type.dtype));
    if (!takes_input) continue;
    if (donated == Donated::kCopied && outputs.back().nbytes() > 0)
      std::memcpy(output_refs.back().data, input_refs[input].data, outputs.back().nbytes());
    input_refs[input].data = output_refs.back().data;
  }
  run_on_team(program, symbols, {input_refs.data(), input_refs.size()}, {output_refs.data(), output_refs.size()});
  return outputs;
}

namespace {

/// The kernel for Meta. Sizes are SymInts throughout: a plain size would specialise the trace, and give a graph per
/// sequence length.
Tensors call_meta(std::string_view text, at::TensorList inputs) {
  const ProgramRef program = find_program(text);
  const Signature& signature = program->signature();
  auto symbols = signature.bind_symbolic(inputs);
  Tensors outputs;
  for (const Signature::Tensor& output : signature.outputs()) {
    outputs.push_back(at::empty_symint(Signature::sizes(output, symbols), at::device(at::kMeta).dtype(output.dtype)));
  }
  return outputs;
}

/// The kernel for any other device: an error.
Tensors call_elsewhere(std::string_view text, at::TensorList inputs) {
  const ProgramRef ref = find_program(text);
  const CallProgram& program = *ref;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_cpu()) wrong_device(program, inputs[i], i);
    check(inputs[i].layout() == at::kStrided, "weft::call: input {} of program @{} must be a dense tensor, but is {}",
          i, program.program().name, c10::str(inputs[i].layout()));
  }
  return call_cpu(program, inputs, Donated::kCopied);
}

Tensors call_on_cpu(std::string_view text, at::TensorList inputs) {
  return call_cpu(*find_program(text), inputs, Donated::kCopied);
}

}  // namespace
}  // namespace weft::torch_operator

TORCH_LIBRARY(weft, m) { m.def("call(str program, Tensor[] inputs) -> Tensor[]", {at::Tag::pt2_compliant_tag}); }

namespace weft::torch_operator {
namespace {

/// Looked up at load time (base/fork.h), right after its definition.
const auto& operator_handle = *new auto(c10::Dispatcher::singleton()
                                            .findSchemaOrThrow("weft::call", "")
                                            .typed<Tensors(std::string_view, at::TensorList)>());

}  // namespace

Tensors call(const ProgramRef& program, at::TensorList inputs) {
  const ProgramAtHand at_hand(program);
  return operator_handle.call(program->text(), inputs);
}

}  // namespace weft::torch_operator

TORCH_LIBRARY_IMPL(weft, CPU, m) { m.impl("call", weft::torch_operator::call_on_cpu); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("call", weft::torch_operator::call_meta); }
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) { m.impl("call", weft::torch_operator::call_elsewhere); }
