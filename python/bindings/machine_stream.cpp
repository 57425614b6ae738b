#include "bindings/machine_stream.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "bindings/tensor_tree.h"
#include "engine/native.h"
#include "operator/call.h"
#include "operator/output_memory.h"
#include "operator/signature.h"
#include "record/surroundings.h"
#include "resident/choice.h"

namespace py = pybind11;

namespace weft::bindings {
namespace {

/// How many bytes of weights, times rows, a step must read for other threads of Python to be let in. Such a step takes
/// some microseconds, of which letting them in is a small part.
constexpr int64_t kLongBytes = 1 << 18;
/// For how many steps inputs without time are repeated in memory: several times as many steps as a package computes at
/// once.
constexpr int64_t kRepeated = 64;

interpreter::Array array_of(const at::Tensor& tensor, DType dtype) {
  const at::Tensor dense = tensor.detach().contiguous();
  interpreter::Array array(dtype, tensor.sizes().vec());
  std::memcpy(array.bytes.data(), dense.const_data_ptr(), array.bytes.size());
  return array;
}

std::vector<interpreter::Array> arrays_of(const std::vector<at::Tensor>& tensors) {
  std::vector<interpreter::Array> all;
  for (const at::Tensor& tensor : tensors) {
    check(tensor.is_cpu(), "a tensor of the model is on {}", tensor.device().str());
    const std::optional<DType> dtype = torch_operator::dtype_of(tensor.scalar_type());
    check(dtype.has_value(), "a tensor of the model is {}", c10::toString(tensor.scalar_type()));
    all.push_back(array_of(tensor, *dtype));
  }
  return all;
}

int64_t bytes_of(const ir::Type& type) { return ir::element_count(type.shape).constant() * size_of(type.dtype); }

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

/// Whether the tensor is dense, in memory, and nothing but its numbers.
bool is_plain(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kUsual({c10::DispatchKey::CPU, c10::DispatchKey::ADInplaceOrView,
                                        c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutocastCPU});
  const c10::DispatchKeySet keys = tensor.key_set();
  return tensor.is_cpu() && (keys | kUsual) == kUsual && tensor.is_contiguous();
}

}  // namespace

ChunkPort::ChunkPort(const ir::Type& type, std::optional<int64_t> time)
    : dtype(torch_operator::scalar_type(type.dtype)), time(time) {
  for (const ir::Dim& dim : type.shape) chunk.push_back(dim.constant());
  step = chunk;
  if (!time) return;
  const auto at = static_cast<size_t>(*time);
  if (chunk[at] == 1) step.erase(step.begin() + *time);
  in_rows = std::all_of(chunk.begin(), chunk.begin() + *time, [](int64_t size) { return size == 1; });
}

std::vector<int64_t> ChunkPort::sizes(int64_t chunks) const {
  std::vector<int64_t> all = chunk;
  if (time) all[static_cast<size_t>(*time)] *= chunks;
  return all;
}

StreamCode::StreamCode(const Program& step, const std::vector<at::Tensor>& states, std::vector<at::Tensor> constants,
                       const std::vector<std::optional<int64_t>>& input_times,
                       const std::vector<std::optional<int64_t>>& output_times)
    : program(step), constants(std::move(constants)) {
  const ir::Program& body = *step;
  packages::StepModel model{"weft_stream", body, arrays_of(states), {}, arrays_of(this->constants), {}, {}, {}};
  for (const at::Tensor& state : states) {
    const auto number = static_cast<size_t>(&state - states.data());
    this->states.push_back(body.type(body.body.args[number]));
  }
  for (size_t i = 0; i < input_times.size(); ++i) {
    model.inputs.push_back(body.type(body.body.args[states.size() + i]));
    inputs.emplace_back(model.inputs.back(), input_times[i]);
  }
  int64_t rows = 1;
  for (size_t i = 0; i < output_times.size(); ++i) {
    const ir::Type& type = body.type(body.body.results[states.size() + i]);
    outputs.emplace_back(type, output_times[i]);
    if (!type.shape.empty()) rows = std::max(rows, type.shape[0].constant());
  }
  model.state_names.resize(states.size());
  model.input_names.resize(inputs.size());
  model.output_names.resize(outputs.size());
  int64_t bytes = 0;
  for (const interpreter::Array& weight : model.weights) bytes += static_cast<int64_t>(weight.bytes.size());
  is_long = bytes * rows >= kLongBytes;
  const std::string why = resident::why_engine(model);
  check(why.empty(), "{}", why);
  const auto start = std::chrono::steady_clock::now();
  this->step = resident::Step::make(std::move(model));
  engine::count({nullptr, this->step->is_from_cache(), 0}, start);
}

/// A thread's turn in a stream. Other threads of Python run meanwhile if `is_long`.
class MachineStream::Turn {
 public:
  Turn(std::atomic<bool>& is_busy, bool is_long) : is_busy_(is_busy) {
    check(!is_busy.exchange(true, std::memory_order_acquire),
          "weft.stream: the stream is in a step of another thread: one thread at a time uses a stream");
    if (is_long) released_.emplace();
  }
  ~Turn() { is_busy_.store(false, std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<bool>& is_busy_;
  std::optional<py::gil_scoped_release> released_;
};

MachineStream::MachineStream(std::shared_ptr<const StreamCode> code, const py::object& results)
    : code_(std::move(code)), state_(code_->step) {
  TensorTree tree;
  if (tree.flatten(results.ptr()) && tree.leaves.size() == code_->outputs.size()) structure_ = tree.structure;
  has_settings_ = std::ranges::any_of(code_->inputs, [](const ChunkPort& port) { return !port.time; });
}

void MachineStream::set(const std::vector<at::Tensor>& states) {
  check(states.size() == code_->states.size(), "a stream has {} states, not {}", code_->states.size(), states.size());
  std::vector<std::byte> saved(state_.saved_bytes());
  auto first = static_cast<int64_t>(resident::State::kSavedHeader);
  for (size_t i = 0; i < states.size(); ++i) {
    const int64_t bytes = bytes_of(code_->states[i]);
    const at::Tensor dense = states[i].detach().contiguous();
    check(is_plain(dense) && static_cast<int64_t>(dense.nbytes()) == bytes,
          "weft.stream: state {} must be a dense tensor on the CPU", i);
    if (bytes > 0) std::memcpy(saved.data() + first, dense.const_data_ptr(), static_cast<size_t>(bytes));
    first += padded(bytes);
  }
  const Turn turn(is_busy_, false);
  state_.restore(saved);
}

std::vector<at::Tensor> MachineStream::get() const {
  std::vector<std::byte> saved(state_.saved_bytes());
  state_.save(saved);
  auto first = static_cast<int64_t>(resident::State::kSavedHeader);
  std::vector<at::Tensor> copies;
  for (const ir::Type& type : code_->states) {
    const int64_t bytes = bytes_of(type);
    at::Tensor copy = at::empty(ChunkPort(type, {}).chunk, torch_operator::scalar_type(type.dtype));
    if (bytes > 0) std::memcpy(copy.mutable_data_ptr(), saved.data() + first, static_cast<size_t>(bytes));
    copies.push_back(std::move(copy));
    first += padded(bytes);
  }
  return copies;
}

/// Runs a chunk that has failed on the engine, which raises the error. `inputs`: of all chunks; `chunk`: the index of
/// the failed chunk.
void MachineStream::explain(const Inputs& inputs, int64_t chunk) const {
  const py::gil_scoped_acquire acquired;
  std::vector<at::Tensor> given = get();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ChunkPort& port = code_->inputs[i];
    auto* data = static_cast<std::byte*>(const_cast<void*>(inputs[i]));
    const size_t bytes = code_->step->model().inputs[i].bytes;
    if (port.time) data += static_cast<size_t>(chunk) * bytes;
    given.push_back(at::from_blob(data, port.chunk, at::device(at::kCPU).dtype(port.dtype)));
  }
  given.insert(given.end(), code_->constants.begin(), code_->constants.end());
  torch_operator::call(code_->program.called(), given);
  user_error("weft.stream: an index is outside its table, or an integer is divided by 0");
}

/// Runs chunks that share one tensor for each input without time. Returns how many chunks were done before one failed.
int64_t MachineStream::advance_with_settings(const Inputs& inputs, const Outputs& outputs, int64_t chunks) {
  const resident::Model& model = code_->step->model();
  const int64_t most = std::min(chunks, kRepeated);
  std::vector<std::vector<std::byte>> repeated(inputs.size());
  Inputs given = inputs;
  Outputs made = outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (code_->inputs[i].time) continue;
    for (int64_t chunk = 0; chunk < most; ++chunk) {
      const auto* data = static_cast<const std::byte*>(inputs[i]);
      repeated[i].insert(repeated[i].end(), data, data + model.inputs[i].bytes);
    }
    given[i] = repeated[i].data();
  }
  for (int64_t first = 0; first < chunks; first += most) {
    const auto count = static_cast<size_t>(std::min(most, chunks - first));
    const size_t done = state_.run(given.data(), made.data(), count);
    if (done < count) return first + static_cast<int64_t>(done);
    for (size_t i = 0; i < given.size(); ++i)
      if (code_->inputs[i].time) given[i] = static_cast<const std::byte*>(given[i]) + count * model.inputs[i].bytes;
    for (size_t i = 0; i < made.size(); ++i)
      made[i] = static_cast<std::byte*>(made[i]) + count * model.outputs[i].bytes;
  }
  return chunks;
}

/// Runs chunks: stacks of inputs and outputs, inputs without time as they are. Raises the error of a chunk that fails.
void MachineStream::advance(const Inputs& inputs, const Outputs& outputs, int64_t chunks) {
  const Turn turn(is_busy_, code_->is_long || chunks >= kRepeated);
  const int64_t done =
      has_settings_ ? advance_with_settings(inputs, outputs, chunks)
                    : static_cast<int64_t>(state_.run(inputs.data(), outputs.data(), static_cast<size_t>(chunks)));
  if (done < chunks) explain(inputs, done);
}

namespace {

/// A tensor of a call from Python, if it is a plain one of the port's type; else null.
const at::Tensor* plain_tensor(PyObject* argument, const ChunkPort& port) {
  if (!THPVariable_CheckExact(argument)) return nullptr;
  const at::Tensor& tensor = THPVariable_Unpack(argument);
  return is_plain(tensor) && tensor.scalar_type() == port.dtype ? &tensor : nullptr;
}

/// How many chunks a tensor holds; 0 if its sizes fit no number of chunks.
int64_t chunks_in(const at::Tensor& tensor, const ChunkPort& port) {
  const at::IntArrayRef sizes = tensor.sizes();
  if (sizes.size() != port.chunk.size()) return 0;
  int64_t chunks = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == port.chunk[i]) continue;
    if (static_cast<int64_t>(i) != port.time || sizes[i] % port.chunk[i] != 0) return 0;
    chunks = sizes[i] / port.chunk[i];
  }
  return chunks;
}

/// [.., steps, ..] as [chunks, .., steps of one chunk, ..], dense.
at::Tensor stacked(const at::Tensor& tensor, const ChunkPort& port, int64_t chunks) {
  if (port.in_rows || chunks == 1) return tensor;
  return tensor.unflatten(*port.time, {chunks, -1}).movedim(*port.time, 0).contiguous();
}

at::Tensor stack_for(const ChunkPort& port, int64_t chunks) {
  if (port.in_rows) return torch_operator::empty_output(port.sizes(chunks), port.dtype);
  std::vector<int64_t> sizes = port.chunk;
  sizes.insert(sizes.begin(), chunks);
  return torch_operator::empty_output(sizes, port.dtype);
}

/// The result of a stack of all chunks: joined along time or, without time, the last chunk's.
at::Tensor result_of(at::Tensor stack, const ChunkPort& port) {
  if (port.in_rows) return stack;
  if (!port.time) return stack.select(0, -1).clone();
  return stack.movedim(0, *port.time).flatten(*port.time, *port.time + 1);
}

at::Tensor dense(const at::Tensor& tensor, size_t input) {
  at::Tensor made = tensor.detach().contiguous().resolve_neg();
  check(is_plain(made), "weft.stream: input {} must be a tensor in memory on the CPU, but is on {}{}", input,
        tensor.device().str(), tensor.is_cpu() ? ", without numbers of its own" : "");
  return made;
}

}  // namespace

/// The results as the model gives them, or a list of them.
py::object MachineStream::as_python(const std::vector<at::Tensor>& results) const {
  if (!structure_.empty()) return unflatten(structure_, results.data());
  py::list all(results.size());
  for (size_t i = 0; i < results.size(); ++i)
    PyList_SET_ITEM(all.ptr(), static_cast<Py_ssize_t>(i), THPVariable_Wrap(results[i]));
  return all;
}

py::object MachineStream::step(const py::tuple& arguments) {
  const std::vector<ChunkPort>& ports = code_->inputs;
  if (arguments.size() != ports.size() || !record::are_seen_by_none({})) return py::none();
  Inputs inputs;
  inputs.reserve(ports.size());
  bool is_chunk = true, is_step = true;
  for (size_t i = 0; i < ports.size(); ++i) {
    const at::Tensor* tensor = plain_tensor(PyTuple_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i)), ports[i]);
    if (tensor == nullptr) return py::none();
    is_chunk = is_chunk && tensor->sizes() == at::IntArrayRef(ports[i].chunk);
    is_step = is_step && tensor->sizes() == at::IntArrayRef(ports[i].step);
    inputs.push_back(tensor->const_data_ptr());
  }
  if (!is_chunk && !is_step) return py::none();
  std::vector<at::Tensor> results;
  Outputs outputs;
  results.reserve(code_->outputs.size());
  outputs.reserve(code_->outputs.size());
  for (const ChunkPort& port : code_->outputs) {
    results.push_back(torch_operator::empty_output(is_chunk ? port.chunk : port.step, port.dtype));
    outputs.push_back(results.back().mutable_data_ptr());
  }
  advance(inputs, outputs, 1);
  return as_python(results);
}

py::object MachineStream::run(const py::tuple& arguments) {
  const std::vector<ChunkPort>& ports = code_->inputs;
  if (arguments.size() != ports.size() || !record::are_seen_by_none({})) return py::none();
  const at::NoGradGuard no_gradients;
  int64_t chunks = 0;
  std::vector<at::Tensor> stacks;
  for (size_t i = 0; i < ports.size(); ++i) {
    const at::Tensor* tensor = plain_tensor(PyTuple_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i)), ports[i]);
    const int64_t count = tensor == nullptr ? 0 : chunks_in(*tensor, ports[i]);
    if (count == 0 || (ports[i].time && chunks != 0 && count != chunks)) return py::none();
    if (ports[i].time) chunks = count;
    stacks.push_back(*tensor);
  }
  if (chunks == 0) return py::none();
  Inputs inputs;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].time) stacks[i] = stacked(stacks[i], ports[i], chunks);
    inputs.push_back(stacks[i].const_data_ptr());
  }
  std::vector<at::Tensor> results;
  Outputs outputs;
  for (const ChunkPort& port : code_->outputs) {
    results.push_back(stack_for(port, chunks));
    outputs.push_back(results.back().mutable_data_ptr());
  }
  advance(inputs, outputs, chunks);
  for (size_t i = 0; i < results.size(); ++i) results[i] = result_of(std::move(results[i]), code_->outputs[i]);
  return as_python(results);
}

std::vector<at::Tensor> MachineStream::run_chunk(const std::vector<at::Tensor>& inputs) {
  std::vector<std::pair<at::Tensor, bool>> stacks;
  for (size_t i = 0; i < inputs.size(); ++i)
    stacks.emplace_back(code_->inputs[i].time ? inputs[i].unsqueeze(0) : inputs[i], code_->inputs[i].time.has_value());
  std::vector<at::Tensor> results = run_chunks(stacks, 1);
  for (at::Tensor& result : results) result = result.squeeze(0);
  return results;
}

std::vector<at::Tensor> MachineStream::run_chunks(const std::vector<std::pair<at::Tensor, bool>>& inputs,
                                                  int64_t chunks) {
  const at::NoGradGuard no_gradients;
  check(inputs.size() == code_->inputs.size(), "a stream has {} inputs, not {}", code_->inputs.size(), inputs.size());
  std::vector<at::Tensor> kept;
  Inputs given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ChunkPort& port = code_->inputs[i];
    kept.push_back(dense(inputs[i].first, i));
    const int64_t count = inputs[i].second ? chunks : 1;
    check(kept.back().scalar_type() == port.dtype && inputs[i].second == port.time.has_value() &&
              kept.back().numel() == count * c10::multiply_integers(port.chunk),
          "weft.stream: input {} isn't {} chunks", i, count);
    given.push_back(kept.back().const_data_ptr());
  }
  std::vector<at::Tensor> results;
  Outputs outputs;
  for (const ChunkPort& port : code_->outputs) {
    std::vector<int64_t> sizes = port.chunk;
    sizes.insert(sizes.begin(), chunks);
    results.push_back(torch_operator::empty_output(sizes, port.dtype));
    outputs.push_back(results.back().mutable_data_ptr());
  }
  advance(given, outputs, chunks);
  return results;
}

}  // namespace weft::bindings
