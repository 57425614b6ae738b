#pragma once

#include <bit>
#include <string_view>
#include <vector>

#include "operator/aten.h"
#include "record/errors.h"
#include "record/record.h"

namespace weft::record {

/// The kinds of arguments of an ATen call, spelled as words. Records of steps, records of the device's batches and keys
/// of shapes spell arguments alike.
enum Tag : int64_t {
  kNone,
  kUndefined,
  kOwn,      ///< a value of the recording, or a tensor in a key
  kOutside,  ///< a tensor from outside of the recording
  kOperand,  ///< a value of the batch
  kWrapped,  ///< a tensor that stands for a Python number
  kInt,
  kBool,
  kDouble,
  kComplex,
  kInts,
  kText,
  kDevice,
  kList
};

/// The elements of a list of integers or of symbolic ones.
inline c10::SmallVector<int64_t, 8> integers_of(const c10::IValue& list) {
  c10::SmallVector<int64_t, 8> values;
  for (const c10::IValue& one : list.toListRef())
    values.push_back(one.isInt() ? one.toInt() : one.toSymInt().guard_int(__FILE__, __LINE__));
  return values;
}

/// Spells an argument to `words`, which takes in turn
///     fixed(word), size(number), sizes(numbers), number(double), text(text)    as Record does
///     tensor(tensor)                                                           each tensor, those of lists too
///     other(argument)                                                          what has no spelling
template <typename Words>
void spell(const c10::IValue& argument, Words& words) {
  if (argument.isTensor()) return words.tensor(argument.toTensor());
  if (argument.isNone()) return words.fixed(kNone);
  if (argument.isBool()) return words.fixed(kBool), words.fixed(static_cast<int64_t>(argument.toBool()));
  if (argument.isInt()) return words.fixed(kInt), words.size(argument.toInt());
  if (argument.isSymInt()) return words.fixed(kInt), words.size(argument.toSymInt().guard_int(__FILE__, __LINE__));
  if (argument.isDouble()) return words.fixed(kDouble), words.number(argument.toDouble());
  if (argument.isIntList() || argument.isSymIntList()) return words.fixed(kInts), words.sizes(integers_of(argument));
  if (argument.isString()) return words.fixed(kText), words.text(argument.toStringRef());
  if (argument.isDevice()) return words.fixed(kDevice), words.fixed(static_cast<int64_t>(argument.toDevice().type()));
  if (!argument.isList()) return words.other(argument);
  const auto list = argument.toListRef();
  words.fixed(kList);
  words.fixed(static_cast<int64_t>(list.size()));
  for (const c10::IValue& item : list) spell(item, words);
}

/// Spells a tensor that stands for a Python number. `words` takes an integer as wrapped_size(number).
template <typename Words>
void spell_number(const at::Tensor& number, Words& words) {
  words.fixed(kWrapped);
  words.fixed(static_cast<int64_t>(number.scalar_type()));
  if (number.scalar_type() == at::kDouble) return words.number(*number.const_data_ptr<double>());
  if (number.scalar_type() == at::kLong) return words.wrapped_size(*number.const_data_ptr<int64_t>());
  if (number.scalar_type() == at::kBool) return words.fixed(static_cast<int64_t>(*number.const_data_ptr<bool>()));
  throw UnsupportedError("a number of " + c10::str(number.scalar_type()));
}

/// The key under which the types of a call's results are found again: the operation, the types of its arguments, and
/// the arguments that are no tensors, as words. The value of a number that is an operand among tensors has no part in a
/// type.
class ShapeKey {
 public:
  /// Appends to `words`. `takes_tensors`: the operation has tensors among its arguments, so its floats are operands.
  ShapeKey(std::vector<int64_t>& words, int64_t operation, bool takes_tensors)
      : words_(words), takes_tensors_(takes_tensors) {
    // The operation, and the state besides its arguments that the types depend on.
    words_.push_back(operation);
    words_.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
  }

  void fixed(int64_t word) { words_.push_back(word); }
  void size(int64_t size) { words_.push_back(size); }
  void wrapped_size(int64_t /*number*/) {}
  void number(double number) {
    if (!takes_tensors_) words_.push_back(std::bit_cast<int64_t>(number));
  }
  void sizes(at::IntArrayRef sizes) {
    words_.push_back(static_cast<int64_t>(sizes.size()));
    append(sizes);
  }
  void text(std::string_view text) {
    words_.push_back(static_cast<int64_t>(text.size()));
    spell_text(text, [&](int64_t word) { words_.push_back(word); });
  }
  void tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return fixed(kUndefined);
    const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    words_.push_back(is_number ? kWrapped : kOwn);
    words_.push_back(static_cast<int64_t>(tensor.scalar_type()));
    if (is_number) return;
    sizes(tensor.sizes());
    append(tensor.strides());
  }
  void other(const c10::IValue& /*argument*/) { is_complete_ = false; }

  /// False if an argument had no spelling: then the words are no key.
  bool is_complete() const { return is_complete_; }
  const std::vector<int64_t>& words() const { return words_; }

 private:
  /// One by one: there are few, and a range would be copied by a function.
  void append(at::IntArrayRef sizes) {
    for (const int64_t size : sizes) words_.push_back(size);
  }

  std::vector<int64_t>& words_;
  bool takes_tensors_;
  bool is_complete_ = true;
};

}  // namespace weft::record
