#include "device/graph/batch.h"

#include <algorithm>

#include "device/kernels/operators.h"
#include "device/run/program_argument.h"
#include "record/argument_words.h"

namespace weft::device {

using c10::IValue;
using record::Record;
using Slot = Operator::Slot;

namespace {

uint64_t batches = 0;

/// Leaves an empty list in the place of `from`, whose memory `to` gets.
template <typename List>
void move_memory(List& to, List& from) {
  from.clear();
  to.swap(from);
}

}  // namespace

struct Batch::Spare {
  std::vector<NodeRef> nodes;
  std::vector<ValueRef> leaves;
  std::vector<std::pair<uint64_t, size_t>> numbers;
  std::vector<uint32_t> leaf_reads;
  std::vector<Node*> open;
};

/// Made at load (base/fork.h), never destroyed.
Batch::Spare& Batch::spare = *new Batch::Spare();

Batch::Batch(std::vector<ValueRef> outputs) : serial_(++batches), outputs_(std::move(outputs)) {
  move_memory(nodes_, spare.nodes);
  move_memory(leaves_, spare.leaves);
  move_memory(numbers_, spare.numbers);
  move_memory(leaf_reads_, spare.leaf_reads);
  std::vector<Node*>& open = spare.open;
  for (const ValueRef& output : outputs_) visit(output, open);
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    for (const ValueRef& operand : node->operands) visit(operand, open);
  }
  std::ranges::sort(nodes_, {}, [](const NodeRef& node) { return node->serial; });
  for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i]->place = static_cast<int64_t>(i);
  for (const NodeRef& node : nodes_)
    for (const ValueRef& operand : node->operands)
      if (!operand->maker) add_leaf(operand);
  for (const ValueRef& output : outputs_)
    if (!output->maker) add_leaf(output);
  find_donations();
}

Batch::~Batch() {
  move_memory(spare.nodes, nodes_);
  move_memory(spare.leaves, leaves_);
  move_memory(spare.numbers, numbers_);
  move_memory(spare.leaf_reads, leaf_reads_);
}

void Batch::find_results() {
  size_t count = 0;
  for (const NodeRef& node : nodes_) {
    first_result_.push_back(count);
    count += node->results().size();
  }
  first_result_.push_back(count);
  results_.resize(count);
  auto place = [&](const ValueRef& value) {
    if (!value->maker) return;
    ValueRef& result = results_[first_result_[static_cast<size_t>(value->maker->place)] + value->result];
    if (!result) result = value;
  };
  for (const NodeRef& node : nodes_)
    for (const ValueRef& operand : node->operands) place(operand);
  for (const ValueRef& output : outputs_) place(output);
}

std::span<const ValueRef> Batch::results(size_t node) {
  if (first_result_.empty()) find_results();
  return {results_.data() + first_result_[node], results_.data() + first_result_[node + 1]};
}

ValueRef Batch::replaced(size_t output) const {
  const Value& value = *outputs_[output];
  const auto found = std::ranges::lower_bound(numbers_, std::pair(value.replaces, size_t{0}));
  if (found == numbers_.end() || found->first != value.replaces) return {};
  const ValueRef& leaf = leaves_[found->second];
  return leaf->dtype == value.dtype && leaf->sizes == value.sizes ? leaf : ValueRef();
}

void Batch::find_donations() {
  for (size_t i = 0; i < leaves_.size(); ++i) numbers_.emplace_back(leaves_[i]->number, i);
  std::ranges::sort(numbers_);
  std::vector<bool> is_taken(leaves_.size(), false);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    ValueRef old = replaced(i);
    if (!old) continue;
    const size_t leaf = old->leaf;
    old.reset();
    if (is_taken[leaf] || !is_dead(leaf)) continue;
    is_taken[leaf] = true;
    donations_.push_back({leaf, i});
  }
}

std::vector<std::vector<ir::Donation>> Batch::donations_by_end() const {
  std::vector<int64_t> end(leaves_.size(), 0);
  for (size_t node = 0; node < nodes_.size(); ++node)
    for (const ValueRef& operand : nodes_[node]->operands)
      if (const int64_t at = place(*operand); at < 0) end[static_cast<size_t>(-1 - at)] = static_cast<int64_t>(node);
  std::vector<std::vector<ir::Donation>> by_end(nodes_.size());
  for (const ir::Donation& donation : donations_) {
    const int64_t made = place(*outputs_[donation.result]);
    by_end[static_cast<size_t>(std::max(made, end[donation.input]))].push_back(donation);
  }
  return by_end;
}

/// Whether the batch alone holds the leaf, and the leaf alone holds its memory.
bool Batch::is_dead(size_t leaf) const {
  const Value& value = *leaves_[leaf];
  const at::Tensor& tensor = value.tensor;
  return tensor.defined() && value.holders == 0 && leaves_[leaf].use_count() == leaf_reads_[leaf] + 1 &&
         tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.nbytes() > 0 &&
         tensor.storage().nbytes() == tensor.nbytes();
}

void Batch::visit(const ValueRef& value, std::vector<Node*>& open) {
  if (!value->maker || value->maker->batch == serial_) return;
  value->maker->batch = serial_;
  nodes_.push_back(value->maker);
  open.push_back(value->maker.get());
}

void Batch::add_leaf(const ValueRef& value) {
  if (value->batch != serial_) {
    value->batch = serial_;
    value->leaf = leaves_.size();
    leaves_.push_back(value);
    leaf_reads_.push_back(0);
  }
  ++leaf_reads_[value->leaf];
}

void Batch::done(size_t node) {
  for (size_t i = first_result_[node]; i < first_result_[node + 1]; ++i) results_[i].reset();
  nodes_[node].reset();
}

int64_t Batch::place(const Value& value) const {
  return value.maker ? value.maker->place : -1 - static_cast<int64_t>(value.leaf);
}

bool Batch::tell(Outline& outline) const {
  outline.words.clear();
  outline.numbers.clear();
  size_t told = 0;  // the number of leaves told so far; each is told where it is read first
  const auto tell = [&](const Value& value) {
    outline.words.push_back(place(value));
    if (value.maker) return outline.words.push_back(value.result);
    if (value.leaf < told) return;
    ++told;
    outline.words.push_back(static_cast<int64_t>(value.dtype));
    outline.words.push_back(static_cast<int64_t>(value.sizes.size()));
    outline.words.insert(outline.words.end(), value.sizes.begin(), value.sizes.end());
  };
  for (const NodeRef& node : nodes_) {
    if (node->form->number == 0) return false;
    outline.words.push_back(node->form->number);
    outline.numbers.insert(outline.numbers.end(), node->form->numbers.begin(), node->form->numbers.end());
    for (const ValueRef& operand : node->operands) tell(*operand);
  }
  outline.words.push_back(0);
  outline.words.push_back(static_cast<int64_t>(outputs_.size()));
  for (const ValueRef& output : outputs_) tell(*output);
  for (const ir::Donation& donation : donations_) {
    outline.words.push_back(static_cast<int64_t>(donation.input));
    outline.words.push_back(static_cast<int64_t>(donation.result));
  }
  return true;
}

const Value* Batch::failed() const {
  for (const ValueRef& leaf : leaves_)
    if (leaf->error) return leaf.get();
  return nullptr;
}

namespace {

using record::kList, record::kNone, record::kOperand;
enum Part : int64_t { kOutputs = -1, kDonations = -2 };

/// Goes through a batch in the order of its record. `Words` takes each word in turn.
template <typename Words>
class Walk {
 public:
  Walk(const Batch& batch, Words& words) : batch_(batch), words_(words), is_told_(batch.leaves().size()) {}

  void all() {
    for (const NodeRef& node : batch_.nodes()) tell(*node);
    words_.fixed(kOutputs);
    for (const ValueRef& output : batch_.outputs()) tell(*output);
    words_.fixed(kDonations);
    for (const ir::Donation& donation : batch_.donations()) {
      words_.fixed(static_cast<int64_t>(donation.input));
      words_.fixed(static_cast<int64_t>(donation.result));
    }
  }

 private:
  void tell(const Node& node) {
    words_.begin(node);
    words_.fixed(node.op().traits.name);
    for (size_t i = 0; i < node.arguments().size(); ++i) {
      const IValue& argument = node.arguments()[i];
      words_.begin_argument(argument);
      if (node.op().slots[i] == Slot::kTensor || node.op().slots[i] == Slot::kTensors) {
        tell_operands(node, argument);
      } else if (node.op().slots[i] == Slot::kProgram) {
        words_.fixed(program_argument(argument).number);
      } else {
        record::spell(argument, words_);
      }
    }
    for (const auto& result : node.results()) {
      words_.fixed(result.is_defined ? static_cast<int64_t>(result.dtype) : -1);
      words_.result({result.sizes.data(), result.sizes.size()});
    }
  }

  /// Writes a leaf's type where the leaf is first read.
  void tell(const Value& value) {
    const int64_t place = batch_.place(value);
    words_.fixed(place);
    if (place >= 0) return words_.fixed(value.result);
    const auto leaf = static_cast<size_t>(-1 - place);
    if (is_told_[leaf]) return;
    is_told_[leaf] = true;
    words_.fixed(static_cast<int64_t>(value.dtype));
    words_.leaf(leaf, {value.sizes.data(), value.sizes.size()});
  }

  void tell_operands(const Node& node, const IValue& argument) {
    if (argument.isInt()) {
      words_.fixed(kOperand);
      return tell(*node.operands[static_cast<size_t>(argument.toInt())]);
    }
    if (argument.isTensor()) return record::spell_number(argument.toTensor(), words_);
    if (argument.isNone()) return words_.fixed(kNone);
    words_.fixed(kList);
    const auto list = argument.toIntVector();
    words_.fixed(static_cast<int64_t>(list.size()));
    for (int64_t operand : list) {
      words_.fixed(operand >= 0 ? kOperand : kNone);
      if (operand >= 0) tell(*node.operands[static_cast<size_t>(operand)]);
    }
  }

  const Batch& batch_;
  Words& words_;
  std::vector<bool> is_told_;  ///< by leaf: its type
};

/// For readers of a Node's arguments. These hold no tensors: the number of an operand stands for each.
struct NoTensors {
  static void tensor(const at::Tensor& /*tensor*/) {
    throw std::logic_error("weft internal error: a tensor in a node");
  }
  static void other(const IValue& argument) {
    throw record::UnsupportedError("an argument of type " + argument.tagKind());
  }
};

/// Writes the words into a record.
class RecordWriter : public NoTensors {
 public:
  explicit RecordWriter(Record& record) : record_(record) {}

  std::vector<Batch::LeafSize> leaf_sizes;

  void begin(const Node&) {}
  void begin_argument(const IValue&) {}
  void fixed(int64_t word) { record_.fixed(word); }
  void size(int64_t size) { record_.size(size); }
  void wrapped_size(int64_t number) { record_.size(number); }
  void number(double number) { record_.number(number); }
  void text(std::string_view text) { record_.text(text); }
  void sizes(at::IntArrayRef sizes) { record_.sizes(sizes); }
  void result(std::span<const int64_t> sizes) { record_.sizes(sizes); }
  void leaf(size_t leaf, std::span<const int64_t> sizes) {
    for (size_t i = 0; i < sizes.size(); ++i) leaf_sizes.push_back({record_.words().size() + 1 + i, leaf, i});
    record_.sizes(sizes);
  }

 private:
  Record& record_;
};

/// Reads the sizes of the batch from the words of another record.
class SizeReader : public NoTensors {
 public:
  SizeReader(const std::vector<int64_t>& words, Sized& sized) : words_(words), sized_(sized) {}

  void begin(const Node& node) {
    sized_.arguments.emplace_back();
    sized_.results.emplace_back();
    sized_.arguments.back().reserve(node.arguments().size());
  }
  void begin_argument(const IValue& argument) { sized_.arguments.back().push_back(argument); }
  void fixed(int64_t) { ++at_; }
  void size(int64_t) { sized_.arguments.back().back() = words_.at(at_++); }
  void wrapped_size(int64_t) { sized_.arguments.back().back() = wrapped(words_.at(at_++)); }
  void number(double) { ++at_; }
  void text(std::string_view text) {
    ++at_;
    record::spell_text(text, [this](int64_t) { ++at_; });
  }
  void sizes(at::IntArrayRef like) { sized_.arguments.back().back() = read(like.size()).vec(); }
  void result(std::span<const int64_t> like) { add(sized_.results.back(), like.size()); }
  void leaf(size_t leaf, std::span<const int64_t> like) {
    if (sized_.leaves.size() <= leaf) sized_.leaves.resize(leaf + 1);
    const at::IntArrayRef sizes = read(like.size());
    sized_.leaves[leaf].assign(sizes.begin(), sizes.end());
  }

 private:
  at::IntArrayRef read(size_t count) {
    const at::IntArrayRef found(words_.data() + at_ + 1, count);
    at_ += 1 + count;
    return found;
  }

  void add(std::vector<Sizes>& all, size_t count) {
    const at::IntArrayRef sizes = read(count);
    all.emplace_back(sizes.begin(), sizes.end());
  }

  static at::Tensor wrapped(int64_t number) {
    at::Tensor tensor = at::empty({}, at::kLong).fill_(number);
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  }

  const std::vector<int64_t>& words_;
  Sized& sized_;
  size_t at_ = 0;
};

/// Finds the meaning of some words of the record.
class PlaceFinder : public NoTensors {
 public:
  explicit PlaceFinder(std::span<const size_t> words) : wanted_(words) {}

  std::vector<WordPlace> found;

  void begin(const Node& node) {
    here_ = {};
    here_.node = static_cast<size_t>(node.place);
    arguments_ = 0;
  }
  void begin_argument(const IValue&) { here_.argument = arguments_++; }
  void fixed(int64_t) { pass({}, false); }
  void size(int64_t) { pass({}, false); }
  void wrapped_size(int64_t) { pass({}, false); }
  void number(double) { pass({}, true); }
  void text(std::string_view text) {
    pass({}, false);
    record::spell_text(text, [this](int64_t) { pass({}, false); });
  }
  void sizes(at::IntArrayRef sizes) { pass_sizes({}, sizes.size()); }
  void result(std::span<const int64_t> sizes) {
    here_.argument.reset();
    pass_sizes({}, sizes.size());
  }
  void leaf(size_t leaf, std::span<const int64_t> sizes) { pass_sizes(leaf, sizes.size()); }

 private:
  void pass_sizes(std::optional<size_t> leaf, size_t count) {
    pass({}, false);
    for (size_t i = 0; i < count; ++i) pass(leaf, false, i);
  }

  void pass(std::optional<size_t> leaf, bool is_number, size_t element = 0) {
    if (next_ < wanted_.size() && wanted_[next_] == at_) {
      ++next_;
      here_.word = at_, here_.leaf = leaf, here_.element = element, here_.is_number = is_number;
      found.push_back(here_);
    }
    ++at_;
  }

  std::span<const size_t> wanted_;  ///< sorted
  WordPlace here_;
  size_t at_ = 0, next_ = 0, arguments_ = 0;
};

}  // namespace

std::vector<WordPlace> places_of_words(const Batch& batch, std::span<const size_t> words) {
  PlaceFinder finder(words);
  Walk<PlaceFinder> walk(batch, finder);
  walk.all();
  return std::move(finder.found);
}

Batch::Told Batch::record() const {
  Told told;
  told.record.reserve(20 * nodes_.size() + 8 * (leaves_.size() + outputs_.size()));  // more is rare
  RecordWriter words(told.record);
  Walk<RecordWriter> walk(*this, words);
  walk.all();
  told.leaf_sizes = std::move(words.leaf_sizes);
  return told;
}

Sized at_sizes(const Batch& batch, const std::vector<int64_t>& words) {
  Sized sized;
  SizeReader reader(words, sized);
  Walk<SizeReader> walk(batch, reader);
  walk.all();
  return sized;
}

}  // namespace weft::device
