#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "operator/aten.h"

namespace weft::record {

/// One result of an operation, or one tensor of a result that is a list.
struct ResultShape {
  bool is_defined = true;
  at::ScalarType dtype = at::kFloat;
  c10::SmallVector<int64_t, 4> sizes, strides;
};

/// The types of an operation's results for arguments of known types.
struct ResultShapes {
  std::vector<std::vector<ResultShape>> results;  ///< for each return: the tensors of a list, or one
  std::vector<bool> is_list;
  std::vector<ResultShape> all;  ///< all results in a row
  /// The arguments that the operation has resized in place, by number, with their new sizes.
  std::vector<std::pair<size_t, ResultShape>> resized;
};

/// The hash of a key under which shapes are found.
struct WordsHash {
  size_t operator()(const std::vector<int64_t>& key) const {
    uint64_t hash = key.size();
    for (const int64_t word : key) hash = (std::rotl(hash, 5) ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15U;
    return hash ^ (hash >> 32U);
  }
};

/// The shapes of an operation's results that were found before; nullptr if none were. `key` is the operation with its
/// arguments' types.
std::shared_ptr<const ResultShapes> known_shapes(const std::vector<int64_t>& key);

/// Finds the shapes by the operation's Meta kernel. Most Meta kernels are Python's and take up to a millisecond.
/// `arguments` may hold tensors of any device.
std::shared_ptr<const ResultShapes> find_shapes(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
                                                const std::vector<int64_t>& key);

/// Keeps shapes, to be found by known_shapes.
void remember_shapes(const std::vector<int64_t>& key, std::shared_ptr<const ResultShapes> shapes);

/// Calls the operation's Meta kernel, in C++ where there is one, on Meta tensors. Its results replace the arguments.
void call_on_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Whether the operation stores its only result in its first argument, and the shape of what it stores is computed in
/// C++.
bool can_store_on_meta(const c10::OperatorHandle& op);

/// Runs an operation on the Meta tensors on top of the stack, which checks shapes and types. Only where
/// can_store_on_meta() is true.
void store_on_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// As find_shapes, without the cache.
ResultShapes compute_shapes(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments);

}  // namespace weft::record
