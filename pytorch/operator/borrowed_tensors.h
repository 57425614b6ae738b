#pragma once

#include <c10/util/MaybeOwned.h>

#include "operator/aten.h"

namespace weft::torch_operator {

/// An array of tensors, as at::TensorList wants it, without ownership: their owners must keep them for as long as this
/// object lives. So references need not be counted, which would take two atomic operations for each tensor.
class BorrowedTensors {
 public:
  BorrowedTensors() = default;
  BorrowedTensors(const BorrowedTensors&) = delete;
  BorrowedTensors& operator=(const BorrowedTensors&) = delete;
  ~BorrowedTensors() {
    for (at::Tensor& tensor : tensors_) Traits::destroyBorrow(tensor);
  }

  void append(at::TensorList lent) {
    tensors_.reserve(tensors_.size() + lent.size());  // first of all: an exception must not drop a borrowed tensor
    for (const at::Tensor& tensor : lent) tensors_.push_back(Traits::createBorrow(tensor));
  }

  operator at::TensorList() const { return {tensors_.data(), tensors_.size()}; }

 private:
  using Traits = c10::MaybeOwnedTraits<at::Tensor>;
  c10::SmallVector<at::Tensor, 24> tensors_;
};

}  // namespace weft::torch_operator
