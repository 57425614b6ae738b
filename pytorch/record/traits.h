#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "operator/aten.h"

namespace weft::record {

/// The recorder's view of an operation, from its schema and tags.
struct Traits {
  int64_t name;       ///< equal for the same operation in every record of this process
  bool reads_values;  ///< its result is a number or has a shape that depends on numbers
  bool is_lift;       ///< marks a tensor that was made of Python numbers
  bool takes_tensors;
  bool draws;                ///< it draws random numbers
  std::vector<bool> writes;  ///< by argument: whether it is changed in place
  struct Return {
    int argument = -1;     ///< the argument that is returned, itself or as a view; -1 if none
    int elements_of = -1;  ///< the argument whose elements the tensors of a list are views of
    bool is_argument = false;
  };
  std::vector<Return> returns;

  bool changes_something() const { return std::ranges::find(writes, true) != writes.end(); }
  /// Whether its one result is an argument, or lies in an argument's memory, and nothing changes.
  bool is_view() const { return returns.size() == 1 && returns[0].argument >= 0 && !changes_something(); }
};

const Traits& traits_of(const c10::OperatorHandle& op);

/// The out-of-place variant of an operation in place, with the same arguments: add.Tensor of add_.Tensor,
/// pow.Tensor_Scalar of pow_.Scalar, floor_divide of floor_divide_.Tensor.
std::optional<c10::OperatorHandle> out_of_place(const c10::OperatorHandle& op);

/// ATen's operations that have a kernel of their own for the dispatch key.
std::vector<c10::OperatorHandle> aten_operations_with(c10::DispatchKey key);

/// The number of operations removed so far. A new operation may get the name and address of a removed one.
int64_t operations_generation();

/// Handles operations that arrive while nothing is recorded: those on tensors of the device.
using Otherwise = void (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);
void set_otherwise(Otherwise otherwise);
/// The same for operations with a sparse operand.
void set_otherwise_not_dense(Otherwise otherwise);

/// Routes operations to the recorder while a recording is current. The first call routes all that are defined, later
/// calls those defined since.
void register_kernels();

}  // namespace weft::record
