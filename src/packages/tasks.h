#pragma once

#include <map>
#include <set>
#include <vector>

#include "packages/bound.h"

namespace weft::packages {

/// How a value is computed that has memory of its own.
enum class Way : uint8_t {
  kElements,     ///< element by element over its shape; products by constant weights are among what is computed so
  kReduction,    ///< a sum or maximum
  kContraction,  ///< a product of two values of which neither is constant, or whose columns aren't read in order
  kParts         ///< a copy of parts: concat, pad, dynamic_update
};

/// One loop nest, and the values that it stores. The nests run one after the other.
struct Task {
  Way way;
  std::vector<ir::ValueId> values;  ///< of one shape; more than one only where elements are computed
  std::set<ir::ValueId> reads;      ///< values in memory
};

/// The ops of a step as loop nests. What has no memory of its own is computed where it is read.
struct Tasks {
  std::vector<Task> tasks;
  std::map<ir::ValueId, size_t> task_of;  ///< of values that have memory of their own
  /// By state: whether the new one may be stored in the memory of the old, since nothing reads that later.
  enum class InPlace : uint8_t {
    kNo,
    kIfOneBlock,  ///< if the nest computes all elements before it stores any
    kYes          ///< each element of it is computed from the old one alone
  };
  std::vector<InPlace> in_place;
  bool may_fail = false;  ///< an index may be out of range, an integer may be divided by zero
};

Tasks divide(const Bound& step);

/// The parts of a product's left operand along its last dim: of a concat whose parts the product reads itself, more
/// than one.
struct Segment {
  ir::ValueId value;
  int64_t first, size;
};
std::vector<Segment> segments(const Bound& step, const ir::Op& product);

/// Whether it is a product by constant weights, in f32 or f64.
bool is_product(const Bound& step, const ir::Op& op);

}  // namespace weft::packages
