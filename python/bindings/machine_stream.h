#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/program.h"
#include "resident/step.h"

namespace weft::bindings {

/// A tensor of a chunk.
struct ChunkPort {
  at::ScalarType dtype;
  std::vector<int64_t> chunk;   ///< its sizes
  std::vector<int64_t> step;    ///< without the dim of time, where that is one element; else as `chunk`
  std::optional<int64_t> time;  ///< the dim of its time
  bool in_rows = false;         ///< of several chunks in one dense tensor each is dense

  ChunkPort(const ir::Type& type, std::optional<int64_t> time);
  /// The sizes of so many chunks.
  std::vector<int64_t> sizes(int64_t chunks) const;
};

/// The step of a stream as a package's machine code, which copies of the stream share.
struct StreamCode {
  /// `step`: (states..., inputs..., constants...) -> (next states..., outputs...). `input_times`, `output_times`: the
  /// dim of time of each input and output that has one. User's error where packages have no form of the step.
  StreamCode(const Program& step, const std::vector<at::Tensor>& states, std::vector<at::Tensor> constants,
             const std::vector<std::optional<int64_t>>& input_times,
             const std::vector<std::optional<int64_t>>& output_times);

  Program program;
  std::vector<at::Tensor> constants;
  std::vector<ir::Type> states;
  std::vector<ChunkPort> inputs, outputs;
  std::shared_ptr<const resident::Step> step;
  bool is_long = false;  ///< other threads of Python may run meanwhile
};

/// The state of a stream whose steps are machine code. Used by one thread at a time; RuntimeError where another one is
/// in a step.
class MachineStream {
 public:
  /// A stream before its first step. `results`: tensors in the structure of the model's results, such as (y, (h, c)).
  MachineStream(std::shared_ptr<const StreamCode> code, const pybind11::object& results);

  /// Replaces the states by others of the same types.
  void set(const std::vector<at::Tensor>& states);
  /// Copies of the states, in order.
  std::vector<at::Tensor> get() const;

  /// Whether results are returned in the structure that the model gives them. They are a list instead if not all of the
  /// model's results are tensors.
  bool is_structured() const { return !structure_.empty(); }

  /// One chunk of dense tensors on the CPU, with the dim of time or without. None for other arguments, which Python has
  /// words for.
  pybind11::object step(const pybind11::tuple& arguments);
  /// The same for any number of chunks, at least one.
  pybind11::object run(const pybind11::tuple& arguments);

  /// One chunk, with the dim of time.
  std::vector<at::Tensor> run_chunk(const std::vector<at::Tensor>& inputs);
  /// Several chunks. `inputs`: with true, the stack of all chunks; with false, a tensor without time. Returns for each
  /// output the stack of all chunks.
  std::vector<at::Tensor> run_chunks(const std::vector<std::pair<at::Tensor, bool>>& inputs, int64_t chunks);

 private:
  class Turn;
  using Inputs = std::vector<const void*>;
  using Outputs = std::vector<void*>;
  void advance(const Inputs& inputs, const Outputs& outputs, int64_t chunks);
  int64_t advance_with_settings(const Inputs& inputs, const Outputs& outputs, int64_t chunks);
  pybind11::object as_python(const std::vector<at::Tensor>& results) const;
  [[noreturn]] void explain(const Inputs& inputs, int64_t chunk) const;

  std::shared_ptr<const StreamCode> code_;
  resident::State state_;
  std::string structure_;      // TensorTree's
  bool has_settings_ = false;  // inputs without time
  std::atomic<bool> is_busy_{false};
};

}  // namespace weft::bindings
