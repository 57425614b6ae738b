#pragma once

#include <map>
#include <set>
#include <vector>

#include "packages/plan/bound.h"

namespace weft::packages {

/// How a value with memory of its own is computed.
enum class Way : uint8_t {
  kElements,     ///< element by element over its shape, products by constant weights among the ops
  kReduction,    ///< a sum or maximum
  kContraction,  ///< a product of two values of which neither is constant, or whose columns aren't read in order
  kParts         ///< a copy of parts: concat, pad, dynamic_update
};

/// One loop nest and the values that it stores. Nests run one after the other.
struct Task {
  Way way;
  std::vector<ir::ValueId> values;  ///< of one shape; several only in a nest of Way::kElements
  std::set<ir::ValueId> reads;      ///< values in memory
};

/// The ops of a step as loop nests. A value without memory of its own is computed where it is read.
struct Tasks {
  std::vector<Task> tasks;
  std::map<ir::ValueId, size_t> task_of;  ///< by value with memory of its own: the nest that stores it
  /// By state: whether the new state may be stored in the memory of the old one, which nothing reads later.
  enum class InPlace : uint8_t {
    kNo,
    kIfOneBlock,  ///< if the nest computes all elements before it stores any
    kYes          ///< each element depends on the same element of the old state alone
  };
  std::vector<InPlace> in_place;
  bool may_fail = false;  ///< an index may be out of range, an integer may be divided by zero
};

/// The nests of a step. `steps`: of the calls that the nests are for. If it isn't 1, no nest reads a window over a
/// value that it computes, so that it may compute the value for all steps before the next nest reads them.
Tasks divide(const Bound& step, int64_t steps);

/// The parts of a product's left operand along its last dim: of a concat whose parts the product reads itself, more
/// than one. A product that multiplies bytes reads whole rows.
struct Segment {
  ir::ValueId value;
  int64_t first, size;
};
std::vector<Segment> segments(const Bound& step, const ir::Op& product);

/// Whether the op is a product by constant weights, in f32 or f64.
bool is_product(const Bound& step, const ir::Op& op);

/// Whether a product rounds its left operand to 8 bits and multiplies bytes: where the step asks for it, products of
/// f32 with at least 32 columns and 16 to 131,072 rows of weights.
bool multiplies_bytes(const Bound& step, const ir::Op& product);

}  // namespace weft::packages
