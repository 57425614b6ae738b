#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "bindings/program.h"
#include "streaming/histories.h"

namespace weft::bindings {

/// The state of a stream between its steps. Histories (streaming/histories.h) lie in buffers of twice their rows: a
/// step adds its rows behind them, and when the end is reached the rows are moved to the beginning, so that a step
/// copies as many rows for any length of history. Used by one thread at a time.
class StreamState {
 public:
  /// `step`: (states..., inputs..., constants...) -> (next states..., outputs...). `states`: the initial states, on the
  /// CPU where histories are to be kept there.
  StreamState(const Program& step, std::vector<at::Tensor> states, std::vector<at::Tensor> constants);

  /// Replaces the states by others of the same types.
  void set(const std::vector<at::Tensor>& states);
  /// Copies of the states, in order.
  std::vector<at::Tensor> get() const;
  /// Runs one step; returns its outputs. If it fails, the state is unchanged.
  std::vector<at::Tensor> run_chunk(const std::vector<at::Tensor>& inputs);
  /// Runs the step for several chunks, one after the other. `inputs`: with true, the stack of all chunks; with false, a
  /// tensor without time. Returns for each output the stack of all chunks.
  std::vector<at::Tensor> run_chunks(const std::vector<std::pair<at::Tensor, bool>>& inputs, int64_t chunks);

 private:
  /// A buffer of rows. The state's tensor shows the rows from `first` on.
  struct Buffer {
    at::Tensor all;
    int64_t first = 0, rows = 0, fresh = 0, row_elements = 0;
  };
  void keep(size_t state, const streaming::History& history);
  void add(size_t state, const at::Tensor& fresh);

  torch_operator::ProgramRef step_;
  std::vector<at::Tensor> constants_;
  std::vector<at::Tensor> states_;  // a history is a view of its buffer, which moves
  std::vector<std::optional<Buffer>> buffers_;
};

}  // namespace weft::bindings
