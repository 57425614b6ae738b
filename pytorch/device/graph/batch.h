#pragma once

#include <optional>
#include <span>
#include <vector>

#include "device/graph/graph.h"
#include "ir/program.h"
#include "record/record.h"

namespace weft::device {

/// Pending operations that run together, in the order in which they were recorded, with a record of them, word for
/// word. Two batches with equal records compute the same function of their leaves.
///
/// Made and used by one thread at a time (run.h).
class Batch {
 public:
  /// All operations that the outputs depend on.
  explicit Batch(std::vector<ValueRef> outputs);
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  const std::vector<NodeRef>& nodes() const { return nodes_; }
  const std::vector<ValueRef>& outputs() const { return outputs_; }
  /// The known values that the batch reads, in the order in which they are first read.
  const std::vector<ValueRef>& leaves() const { return leaves_; }
  /// The leaf whose place an output takes in its storage; null if there is none.
  ValueRef replaced(size_t output) const;
  /// Leaves whose memory nobody needs once the batch has run, each with the output that takes its place: the old and
  /// the new value of a parameter.
  const std::vector<ir::Donation>& donations() const { return donations_; }
  /// By node: the donations that end at this node. Nothing reads the leaf after the node, and the result has been
  /// computed by then.
  std::vector<std::vector<ir::Donation>> donations_by_end() const;
  /// A node's results; null for a result that nobody has.
  std::span<const ValueRef> results(size_t node);
  /// Forgets a node that has run, and frees the values that only this node read.
  void done(size_t node);
  /// The number of a node that hasn't run; or -1 - the number of a leaf.
  int64_t place(const Value& value) const;

  /// A word that is the size of a leaf's dim.
  struct LeafSize {
    size_t word, leaf, dim;
  };
  /// The batch's record, and which of its words are sizes of leaves. Throws record::UnsupportedError for an argument
  /// that a record can't hold.
  struct Told {
    record::Record record;
    std::vector<LeafSize> leaf_sizes;
  };
  Told record() const;

  /// The record in few words: a number stands for all of a node but its operands. Two batches with the same words and
  /// numbers have equal records.
  struct Outline {
    std::vector<int64_t> words;
    std::vector<double> numbers;  ///< the record's floating-point numbers, in order
  };
  /// False, with a meaningless outline, if a node's form has no number.
  bool tell(Outline& outline) const;
  /// The first leaf that has an error instead of a value; null if there is none.
  const Value* failed() const;

 private:
  /// The last batch's lists, kept for the next batch. Allocating lists of that size again would make the heap give up
  /// its caches of small blocks.
  struct Spare;
  static Spare& spare;

  void visit(const ValueRef& value, std::vector<Node*>& open);
  void add_leaf(const ValueRef& value);
  void find_results();
  void find_donations();
  bool is_dead(size_t leaf) const;

  uint64_t serial_;
  std::vector<NodeRef> nodes_;
  std::vector<ValueRef> outputs_, leaves_;
  std::vector<std::pair<uint64_t, size_t>> numbers_;  ///< the leaves' numbers, each with its index in leaves_
  std::vector<uint32_t> leaf_reads_;
  std::vector<ir::Donation> donations_;
  std::vector<ValueRef> results_;     ///< of all nodes, one after the other; found when they are first asked for
  std::vector<size_t> first_result_;  ///< by node: its first in results_
};

/// The origin of a word of a batch's record: an argument of a node, or a leaf that the node is the first to read.
struct WordPlace {
  size_t word = 0;
  std::optional<size_t> node, argument, leaf;
  size_t element = 0;  ///< the index in a list of sizes
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
