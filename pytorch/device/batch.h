#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/graph.h"
#include "ir/program.h"
#include "record/record.h"

namespace weft::device {

/// Pending operations that run together, in the order in which they were recorded, and what they did, word for word:
/// two batches with equal records compute the same function of their leaves.
///
/// Made and used by one thread at a time (run.h).
class Batch {
 public:
  /// Everything that the values depend on.
  explicit Batch(std::vector<ValueRef> outputs);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  const std::vector<NodeRef>& nodes() const { return nodes_; }
  const std::vector<ValueRef>& outputs() const { return outputs_; }
  /// Values that are known, in the order in which they are read first.
  const std::vector<ValueRef>& leaves() const { return leaves_; }
  /// The leaf that an output takes the place of in its storage; null if that is none.
  ValueRef replaced(size_t output) const;
  /// Leaves whose memory nobody has when the batch has run, each with the output that takes their place: the old and
  /// the new value of a parameter.
  const std::vector<ir::Donation>& donations() const { return donations_; }
  /// By node: the donations whose leaf nothing reads after it, and whose result it gives or is there before.
  std::vector<std::vector<ir::Donation>> donations_by_end() const;
  /// A node's results; null for those that nobody has.
  std::span<const ValueRef> results(size_t node) const {
    return {results_.data() + first_result_[node], results_.data() + first_result_[node + 1]};
  }
  /// Forgets a node that has run: what only it has read is freed.
  void done(size_t node);
  /// The number of a node that hasn't run; or -1 - the number of a leaf.
  int64_t place(const Value& value) const;

  /// A word that is the size of a leaf's dim.
  struct LeafSize {
    size_t word, leaf, dim;
  };
  /// What the batch does, and which words of that are sizes of leaves. Throws record::UnsupportedError for an
  /// argument that a record can't hold.
  struct Told {
    record::Record record;
    std::vector<LeafSize> leaf_sizes;
  };
  Told record() const;
  /// The first leaf that has no value, since an error came in its place; null if there is none.
  const Value* failed() const;

 private:
  void visit(const ValueRef& value, std::vector<Node*>& open);
  void add_leaf(const ValueRef& value);
  void find_donations();
  bool is_dead(size_t leaf) const;

  uint64_t serial_;
  std::vector<NodeRef> nodes_;
  std::vector<ValueRef> outputs_, leaves_;
  std::unordered_map<const Value*, int64_t> leaf_numbers_;
  std::vector<std::pair<uint64_t, size_t>> numbers_;  ///< of leaves, each with its place among them
  std::vector<uint32_t> leaf_reads_;
  std::vector<ir::Donation> donations_;
  std::vector<ValueRef> results_;     ///< of all nodes
  std::vector<size_t> first_result_;  ///< by node
};

/// What a word of a batch's record is: of which node, and there of which argument or of which leaf that is read there.
struct WordPlace {
  size_t word = 0;
  std::optional<size_t> node, argument, leaf;
  size_t element = 0;  ///< of a list of sizes
  bool is_number = false;
};
std::vector<WordPlace> places_of_words(const Batch& batch, std::span<const size_t> words);

/// A batch's operations at other sizes.
struct Sized {
  std::vector<std::vector<c10::IValue>> arguments;  ///< by node
  std::vector<std::vector<Sizes>> results;          ///< by node
  std::vector<Sizes> leaves;
};

/// `words`: the batch's record at these sizes.
Sized at_sizes(const Batch& batch, const std::vector<int64_t>& words);

}  // namespace weft::device
