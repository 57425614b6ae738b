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
  /// `step`: (states..., inputs..., constants...) -> (next states..., outputs...); `states`: those before it, on the
  /// CPU where histories are to be kept so.
  StreamState(const Program& step, std::vector<at::Tensor> states);

  /// Goes on from other states, which are like those before.
  void set(const std::vector<at::Tensor>& states);
  /// Copies of the states, in order.
  std::vector<at::Tensor> get() const;
  /// One step; its outputs. If it fails the state is as it was.
  std::vector<at::Tensor> run_chunk(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& constants);
  /// The step for each of some chunks, one after the other. `inputs`: of those that have a time, the stack of all
  /// chunks. Of each output the stack of all chunks.
  std::vector<at::Tensor> run_chunks(const std::vector<std::pair<at::Tensor, bool>>& inputs,
                                     const std::vector<at::Tensor>& constants, int64_t chunks);

 private:
  /// Rows in a buffer, of which the state's tensor shows those from `first` on.
  struct Buffer {
    at::Tensor all;
    int64_t first = 0, rows = 0, fresh = 0, row_elements = 0;
  };
  void keep(size_t state, const streaming::History& history);
  void add(size_t state, const at::Tensor& fresh);

  torch_operator::ProgramRef step_;
  std::vector<at::Tensor> states_;  // of a history a view of its buffer, which moves
  std::vector<std::optional<Buffer>> buffers_;
};

}  // namespace weft::bindings
