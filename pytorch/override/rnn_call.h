#pragma once

#include "operator/aten.h"
#include "override/rnn_program.h"

namespace weft::override_kernels {

/// A call of aten::gru or a similar operator: its tensors and its options.
struct RnnCall {
  Cell cell;
  const at::Tensor& input;                  ///< [T,B,I], with batch_first [B,T,I]; packed [N,I]; of a single step [B,I]
  const at::Tensor* batch_sizes = nullptr;  ///< i64[T], if the input is packed
  at::TensorList states;                    ///< h, lstm: and c: [L*D,B,size], of a single step [B,size]
  at::TensorList params;
  bool has_biases = true;
  int64_t layers = 1;
  double dropout = 0;
  bool train = false, bidirectional = false, batch_first = false;
  RnnConfig::Form form = RnnConfig::Form::kPadded;

  /// Dropout between layers takes place, drawing from PyTorch's generator.
  bool drops() const { return train && dropout != 0 && layers > 1; }
};

/// Why Weft has no kernel for a call; empty if it has one, or if PyTorch would refuse the call.
std::string unsupported(const RnnCall& call);

/// The configuration of a well-formed call; empty if anything doesn't fit. T = 0 doesn't: PyTorch refuses it. All sizes
/// except T, B and N become guards, so that a trace stays dynamic in these three.
std::optional<RnnConfig> configuration(const RnnCall& call);

/// Whether a tensor stands for another, as those of tracers and transforms do. The values of such a tensor can't be
/// read.
bool may_be_traced(const at::Tensor& tensor);

/// The batch sizes of a packed call, if they can be read.
const int64_t* known_batch_sizes(const RnnCall& call);

/// Whether the batch sizes of a packed call are known (it isn't traced) and all equal, so that the rows are a dense
/// [T,B,I].
bool is_uniform(const RnnCall& call);

}  // namespace weft::override_kernels
