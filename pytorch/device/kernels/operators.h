#pragma once

#include <optional>

#include "operator/aten.h"
#include "record/traits.h"

namespace weft::device {

/// What the device needs to know of an operation.
struct Operator {
  enum class Kind : uint8_t {
    kRecorded,     ///< its results are new tensors
    kView,         ///< its results are views of an argument
    kViewInPlace,  ///< shows another part of its argument's storage, in place (transpose_)
    kReads,        ///< its result, or the result's shape, depends on values of tensors
    kDraws,        ///< draws random numbers
    kWrites,       ///< changes arguments
    kComposite,    ///< made of other operations (_foreach_add_)
    kOwn           ///< has a function of its own here
  };
  enum class Slot : uint8_t { kPlain, kTensor, kTensors, kDevice, kGenerator, kProgram };
  using Function = void (*)(const Operator& op, torch::jit::Stack& stack);

  c10::OperatorHandle handle;
  record::Traits traits;
  Kind kind = Kind::kRecorded;
  Function function = nullptr;               ///< of kOwn
  std::optional<c10::OperatorHandle> plain;  ///< of kWrites: the variant that returns new tensors
  std::vector<Slot> slots;                   ///< by argument
  bool takes_device = false;                 ///< one of its arguments is a device
  bool differs_from_meta = false;  ///< the CPU's kernel gives other sizes or strides than the Meta kernel says
  bool is_made_of_numbers = true;  ///< takes no tensors except those that it writes its results to
  bool is_pointwise = false;       ///< what it writes must not partly overlap what it reads
  bool takes_any_device = false;   ///< operands may be on the CPU beside others on the device

  const c10::FunctionSchema& schema() const { return handle.schema(); }
  size_t arguments() const { return slots.size(); }
};

/// The table's entry for an operation. Made once; never freed.
const Operator& operator_of(const c10::OperatorHandle& handle);
/// An operation that is part of PyTorch, by its name. Not fast.
const Operator& operator_named(const char* name, const char* overload);

/// The device's function for an operation; nullptr if it has none of its own.
Operator::Function own_function(const std::string& name);

}  // namespace weft::device
