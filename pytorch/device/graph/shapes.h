#pragma once

#include <memory>

#include "device/graph/graph.h"
#include "device/kernels/operators.h"

namespace weft::device {

/// Thrown where PyTorch's Meta kernel, or the CPU's kernel on a small case, refuses the arguments. If the CPU's kernel
/// raises an error on the actual arguments, that error should be raised instead.
struct RefusedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The types of the operation's results, by its Meta kernel. Throws RefusedError; c10::NotImplementedError where there
/// is no Meta kernel.
std::shared_ptr<const record::ResultShapes> shapes_of(const Operator& op, at::ArrayRef<c10::IValue> arguments);

/// What is known of a call from earlier calls with the same arguments.
struct KnownCall {
  std::shared_ptr<const record::ResultShapes> shapes;  ///< as shapes_of
  FormRef form;                                        ///< null where it isn't known
};
KnownCall known_call(const Operator& op, at::ArrayRef<c10::IValue> arguments);
/// Keeps the form of this call for the next one.
void remember_form(const Operator& op, at::ArrayRef<c10::IValue> arguments, FormRef form);

/// How a view shows its base's storage.
struct ViewShape {
  at::ScalarType dtype;
  Sizes sizes, strides;
  int64_t offset;
  bool is_conj, is_neg;
};

struct ViewShapes {
  std::vector<std::vector<ViewShape>> results;  ///< for each return: the views of a list, or one
  std::vector<bool> is_list;
};

/// How an operation's results show the storage of the argument with index `base`. Throws PyTorch's errors.
std::shared_ptr<const ViewShapes> views_of(const Operator& op, at::ArrayRef<c10::IValue> arguments, size_t base);

}  // namespace weft::device
