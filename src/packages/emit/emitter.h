#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "packages/plan/chains.h"
#include "packages/plan/memory.h"
#include "packages/plan/rings.h"
#include "packages/plan/stored_weights.h"
#include "packages/plan/stretches.h"
#include "packages/plan/tasks.h"
#include "packages/target.h"

namespace weft::packages {

/// One coordinate: a loop's counter plus a constant.
struct Coordinate {
  llvm::Value* base = nullptr;
  int64_t offset = 0;
  auto operator<=>(const Coordinate&) const = default;
};

/// A vector of elements of a value: neighbours along one dim, or one element.
struct Place {
  std::vector<Coordinate> at;
  int64_t lane = -1;   ///< the dim; -1: one element
  unsigned lanes = 1;  ///< the number of lanes; those after the end of the dim hold anything
  auto operator<=>(const Place&) const = default;
};

/// Memory of a value.
struct Buffer {
  llvm::Value* base = nullptr;
  std::vector<int64_t> strides;  ///< in elements
  DType dtype = DType::kF32;
  int64_t step = 0;  ///< in a call of several steps, bytes from one step's value to the next one's
};

/// Emits one step as straight LLVM IR: loop nests with constant bounds over memory at constant offsets. There is no
/// call in it, of the runtime or of a library; a long step is several functions.
///
/// A call of several steps is made of the same nests. Values have memory for each of its steps, and a nest runs for all
/// of them before the next one begins, a few steps at a time, which share the weights that they load. Each element is
/// computed as in a call of one step, to the bit.
class Emitter {
 public:
  Emitter(const Bound& step, const Plan& plan, const StoredWeights& weights, const Target& target,
          llvm::Module& module);

  /// The function (state, inputs, outputs) -> status, and the memory that it takes.
  llvm::Function* emit_step(const std::string& name);
  /// The function for the plan's steps, whose inputs and outputs are stacks; after emit_step. Null if there is none.
  llvm::Function* emit_steps(const std::string& name);
  /// What states take, when all functions are there.
  const Memory& memory() const { return memory_; }

 private:
  using Body = std::function<void(llvm::Value* i)>;

  // ---- loops and memory (emitter.cpp)
  void loop(int64_t count, int64_t step, const Body& body);
  /// Emits nested loops over `sizes`, skipping dims of one element.
  void loops(const std::vector<int64_t>& sizes, size_t dim, std::vector<Coordinate>& at,
             const std::function<void()>& body);
  llvm::Value* number(int64_t value) { return llvm::ConstantInt::get(index_, static_cast<uint64_t>(value), true); }
  llvm::Value* sum(const Coordinate& coordinate);
  llvm::Value* index(llvm::Instruction::BinaryOps code, llvm::Value* a, llvm::Value* b);
  llvm::Value* index(llvm::Instruction::BinaryOps code, llvm::Value* a, int64_t b) { return index(code, a, number(b)); }
  llvm::Value* address(const Buffer& buffer, const std::vector<Coordinate>& at);
  llvm::Value* load(const Buffer& buffer, const Place& place, const std::vector<int64_t>& sizes);
  llvm::Value* load_lanes(const Buffer& buffer, const Place& place, const std::vector<int64_t>& sizes);
  void store(const Buffer& buffer, const std::vector<Coordinate>& at, llvm::Value* value);
  llvm::Value* load_steps(const Buffer& buffer, const Place& place, const std::vector<int64_t>& sizes);
  static bool is_known(const Coordinate& at);
  llvm::Value* load_rows(const Buffer& buffer, const Place& place);
  llvm::Value* concatenated(const std::vector<llvm::Value*>& parts);
  llvm::Value* repeated(llvm::Value* vector);
  void store_exactly(const Buffer& buffer, const std::vector<Coordinate>& at, llvm::Value* value, int64_t lanes);
  llvm::FixedVectorType* register_type(DType dtype, unsigned lanes);
  llvm::Value* splat(llvm::Value* value, unsigned lanes);
  unsigned lanes_for(ir::ValueId value) const;
  unsigned lanes_for(DType dtype, int64_t columns) const;
  Memory::Slot space(int64_t bytes);
  Memory::Slot& reserve(ir::ValueId value, int64_t row) { return reserve(value, sizes(value), row); }
  Memory::Slot& reserve(ir::ValueId value, const std::vector<int64_t>& shape, int64_t row);
  Buffer in_state(ir::ValueId value, const Memory::Slot& slot);
  Buffer dense(llvm::Value* base, ir::ValueId value);
  std::vector<int64_t> sizes(ir::ValueId value) const { return sizes_of(program_, value); }
  static bool is_empty(const std::vector<int64_t>& sizes) { return std::ranges::find(sizes, 0) != sizes.end(); }
  DType dtype(ir::ValueId value) const { return program_.type(value).dtype; }
  llvm::GlobalVariable* global(llvm::Constant* data, const std::string& name);

  // ---- elements (elements.cpp)
  llvm::Value* get(ir::ValueId value, const Place& place);
  llvm::Value* compute(ir::ValueId value, const ir::Op& op, const Place& place);
  llvm::Value* get_constant(ir::ValueId value, const Place& place);
  llvm::GlobalVariable* table(const interpreter::Array& array);
  llvm::Value* load_from(llvm::GlobalVariable* table, const interpreter::Array& array, const Place& place);
  llvm::Value* get_one_by_one(ir::ValueId value, const Place& place);
  int64_t depth(ir::ValueId value);
  llvm::Value* elementwise(const ir::Op& op, const Place& place);
  llvm::Value* broadcast(const ir::Op& op, const Place& place);
  std::optional<Place> reshaped(const ir::Op& op, const Place& place);
  llvm::Value* gather(const ir::Op& op, const Place& place);
  llvm::Value* dynamic_slice(const ir::Op& op, const Place& place);
  /// An index that is in 0..most, or else 0 and the step fails.
  llvm::Value* checked_index(llvm::Value* index, int64_t most);
  llvm::Value* integer_division(const ir::Op& op, llvm::Value* x, llvm::Value* y);
  void fail_if(llvm::Value* any);
  llvm::Value* valid(llvm::Value* vector);

  // ---- long sums and maxima (chains.cpp)
  /// A leaf of a chain's terms while a loop over the terms is emitted.
  struct MovedLeaf {
    const ChainLeaf* leaf;
    llvm::GlobalVariable* table;  ///< a constant: those of all terms
    interpreter::Array shape;     ///< the table's, without elements
  };
  const std::vector<ChainPart>& chain_at(ir::ValueId value, const ir::Op& op);
  llvm::Value* fold_chain(const ir::Op& op, const std::vector<ChainPart>& chain, const Place& place);
  llvm::Value* fold_terms(const ir::Op& op, const ChainPart& part, const Place& place);
  void move_leaf(const ChainLeaf& leaf);
  llvm::Value* get_moved(const MovedLeaf& moved, const Place& place);

  // ---- products by constant weights (products.cpp)
  /// A term of a sum: left [..., K] by some rows of the weights, from a column on.
  struct Part {
    const ir::Op* product;
    ir::ValueId left;
    std::vector<Coordinate> rows;  ///< of the left operand
    int64_t row, size;             ///< of the weights: the first, and how many
    Coordinate column;
  };
  struct Leaf {
    ir::ValueId value;
    Place place;
  };
  /// One vector of a sum of products, constants and other values.
  struct Sum {
    ir::ValueId value;
    Place place;
    std::vector<Part> parts;
    std::vector<Leaf> constants, others;
  };
  /// How the columns of a nest are divided. A block is a few vectors; for each of them, every sum keeps a register.
  struct Blocks {
    int64_t columns = 1, count = 1;
    unsigned lanes = 1, vectors = 1;
    llvm::Value* backwards = nullptr;  ///< whether this step takes the blocks last to first; null: never
    int64_t width() const { return static_cast<int64_t>(lanes) * vectors; }
    int64_t padded() const { return count * width(); }
  };
  /// Products that read the same row of a left operand, by sum and part.
  using Group = std::vector<std::pair<size_t, size_t>>;
  /// Neighbouring groups that differ by the rows of one value that they read, and are emitted as a loop: taps of a
  /// convolution. One group alone is written as it is.
  struct Run {
    size_t groups = 1;
    std::optional<SliceOf> left;     ///< of the first group
    std::vector<int64_t> distances;  ///< from a group's left operand to the next one's, by dim
  };
  /// Where a block of columns reads its constants, in bytes from the block's start: at 0 the biases of all sums, then
  /// the scales of all parts (of int8 weights), then the start values of sums of products of bytes, then the rows of
  /// each group.
  struct Layout {
    int64_t scales = 0, corrections = 0, bytes = 0;
    std::vector<int64_t> rows;
  };
  /// Registers by sum or part, and in them by split and vector.
  using Totals = std::vector<std::vector<llvm::Value*>>;

  Sum sum_of(ir::ValueId value, const Place& place);
  void add_leaves(ir::ValueId value, const Place& place, bool top, Sum& sum);
  bool is_packable(ir::ValueId value, const Place& place) const;
  llvm::Value* plain_sum(const Sum& sum);
  llvm::Value* multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* add(llvm::Value* a, llvm::Value* b);
  /// The sums that contain products and that the vector of `values` at a place needs, inner ones first.
  std::vector<Sum> find_sums(const std::vector<ir::ValueId>& values, const Place& first);
  /// Computes these sums, all of one type, for block `number` of the columns. get() then finds their values.
  void emit_sums(const std::vector<Sum>& sums, const Blocks& blocks, llvm::Value* number);
  void emit_groups(const std::vector<Sum>& sums, const Blocks& blocks, llvm::Value* block, const Totals& totals,
                   const std::vector<Group>& groups, const Layout& layout, int64_t splits);
  void emit_run(const std::vector<Sum>& sums, const Group& group, const Run& run, const Blocks& blocks,
                llvm::Value* weights, const Totals& totals, int64_t splits);
  void emit_group(const std::vector<Sum>& sums, const Group& group, const Run& run, const Coordinate& turn,
                  const Blocks& blocks, llvm::Value* weights, const Totals& totals, int64_t splits);
  Place left_of(const Part& part, const Run& run, const Coordinate& turn, const Coordinate& k);
  std::optional<SliceOf> left_in_memory(const Part& part) const;
  bool are_neighbours(const std::vector<Sum>& sums, const Group& one, const Group& next) const;
  int64_t written(const std::vector<Sum>& sums, const Group& group, const Blocks& blocks) const;
  /// By group: the run that begins with it.
  std::map<size_t, Run> runs_of(const std::vector<Sum>& sums, const std::vector<Group>& groups,
                                const Blocks& blocks) const;
  llvm::Value* add_splits(const std::vector<llvm::Value*>& total, unsigned vector, const Blocks& blocks,
                          llvm::Type* type);
  static int64_t longest(const std::vector<Sum>& sums, size_t sum, const std::vector<Group>& groups,
                         const std::map<size_t, Run>& runs);
  bool is_straight(const std::vector<Sum>& sums, const Group& group, const Blocks& blocks) const;
  int64_t splits_for(const std::vector<Sum>& sums, const std::vector<Group>& groups, const Blocks& blocks) const;
  std::vector<Group> groups_of(const std::vector<Sum>& sums) const;
  /// `weights`: bytes that the nest reads.
  Blocks blocks_for(ir::ValueId value, const std::vector<Sum>& sums = {}, int64_t weights = 0) const;

  // ---- weights in the order of reading (packing.cpp)
  DType stored_type(const std::vector<Sum>& sums) const;
  Layout layout_of(const std::vector<Sum>& sums, const std::vector<Group>& groups, const Blocks& blocks) const;
  llvm::GlobalVariable* pack(const std::vector<Sum>& sums, const std::vector<Group>& groups, const Blocks& blocks,
                             const Layout& layout);
  bool is_paired(DType stored, size_t vector, size_t of) const;
  std::vector<double> row_of(const std::vector<Sum>& sums, const Group& group, const Blocks& blocks, int64_t block,
                             int64_t k) const;
  double correction(const Part& part, int64_t column) const;
  double bias(const Sum& sum, int64_t column) const;
  llvm::Value* load_vector(llvm::Value* row, int64_t offset, DType stored, size_t vector, size_t of, unsigned lanes);
  llvm::Value* load_weights(llvm::Value* address, DType stored, unsigned lanes, int64_t align);
  llvm::Value* get_weights(const Part& part, const Coordinate& row, const Place& place);
  llvm::Value* get_stored(const Part& part, const Coordinate& row, const Place& place);
  llvm::Value* get_scales(const Part& part, const Place& place);

  // ---- products of bytes (bytes.cpp)
  /// A left operand in 8 bits: its rows as words, which are padded, and its elements; a scale for each row.
  struct Rounded {
    Buffer words, elements, scales;
    Memory::Slot of_words, of_scales;
  };
  bool in_bytes(const Part& part) const;
  /// The rows of weights that a part has, in words if it multiplies bytes.
  int64_t turns(const Part& part) const;
  /// The left operands of products of bytes that a nest computes.
  std::set<ir::ValueId> rounded_for(const Task& task) const;
  void round_rows(ir::ValueId left);
  void round_row(ir::ValueId left, const std::vector<Coordinate>& row, const Blocks& blocks, const Rounded& to);
  void over_row(const Blocks& blocks, const std::function<void(Coordinate, int64_t, int64_t)>& body);
  llvm::Value* largest(ir::ValueId left, const std::vector<Coordinate>& row, const Blocks& blocks);
  llvm::Value* rounded(llvm::Value* x);
  /// Gives back the memory of operands that no task from this one on multiplies.
  void forget_rounded(size_t task);
  /// A vector of columns of the weights for one word, in the order of memory.
  std::vector<llvm::Value*> load_bytes(llvm::Value* row, int64_t offset, unsigned lanes);
  /// total + a word of the left operand times weights.
  llvm::Value* add_word(const Part& part, const Place& word, std::span<llvm::Value* const> weights, llvm::Value* total,
                        unsigned lanes);
  /// A sum of products of bytes in f32: times the scale of the row, then those of the columns.
  llvm::Value* scaled(const Part& part, llvm::Value* sum, llvm::Value* scales, unsigned lanes);
  llvm::Value* plain_bytes(const Part& part, const Place& place);
  std::vector<llvm::Value*> begin_bytes(const Part& part, llvm::Value* corrections, const Blocks& blocks,
                                        int64_t splits);
  void end_bytes(const Part& part, const std::vector<llvm::Value*>& partial, llvm::Value* scales, const Blocks& blocks,
                 const std::vector<llvm::Value*>& totals);

  // ---- nests (nests.cpp)
  struct Destination {
    Buffer buffer;
    std::vector<Coordinate> origin;
    bool exact = false;  ///< nothing may be written behind the last column
  };
  void emit_task(const Task& task);
  void emit_one(const Task& task);
  void free_what_is_read_no_longer(size_t task);
  /// Elements of the values, which may be kNoValue for zeros, to their destinations.
  void emit_elements(const std::vector<ir::ValueId>& values, const std::vector<Destination>& to,
                     const std::vector<int64_t>& domain, const Blocks& blocks);
  using Vectors = std::vector<std::vector<llvm::Value*>>;  ///< by value; by step and vector of a block
  Vectors compute_block(const std::vector<ir::ValueId>& values, const std::vector<Destination>& to, const Place& first,
                        const Blocks& blocks, llvm::Value* number);
  void store_block(const Vectors& vectors, const std::vector<Destination>& to, const Place& first, const Blocks& blocks,
                   int64_t begin);
  static bool are_together(const Blocks& blocks);
  void emit_nest(const std::vector<ir::ValueId>& values);
  bool is_in_place(size_t state, const Blocks& blocks) const;
  std::vector<Sum> sums_of_nest(const std::vector<ir::ValueId>& values);
  std::vector<Sum> of_type(const std::vector<Sum>& sums, DType dtype) const;
  int64_t bytes_of(const std::vector<Sum>& sums) const;
  bool turns_round(const std::vector<Sum>& sums, const Blocks& blocks) const;
  void emit_parts(const ir::Op& op);
  void emit_part(ir::ValueId part, ir::ValueId whole, std::span<const Buffer> to,
                 const std::vector<Coordinate>& origin);
  void emit_reduction(const ir::Op& op);
  void emit_row_reduction(const ir::Op& op, const std::vector<int64_t>& dims);
  void emit_contraction(const ir::Op& op);
  /// The next value of a fold at a place of the result, from the value before.
  using Fold =
      std::function<llvm::Value*(const Place& outer, const std::vector<Coordinate>& inner, llvm::Value* before)>;
  /// A fold over `inner` sizes for each vector of a result.
  void emit_folds(ir::ValueId result, const std::vector<int64_t>& inner,
                  const std::function<llvm::Value*(unsigned lanes)>& start, const Fold& next);
  static bool folds_terms(const ir::Op& op);
  llvm::Value* combine(const ir::Op& op, llvm::Value* a, llvm::Value* b);
  llvm::Value* identity(const ir::Op& op, unsigned lanes);
  llvm::Value* variable(llvm::Value* start);

  // ---- windows over the past (rings.cpp)
  /// The row at which windows of one kind begin before the step and after it, and the row to which the step writes its
  /// new rows.
  struct Turn {
    int64_t offset = 0;  ///< in a state
    llvm::Value *before = nullptr, *after = nullptr, *fresh = nullptr;
  };
  void place_ring(size_t number_of_state, const Ring& ring);
  void find_windows();
  void start_turn(Turn& turn, const Ring& ring);
  Buffer in_ring(ir::ValueId value, const Memory::Slot& slot, const Ring& ring, llvm::Value* row);
  void emit_ring(ir::ValueId value);
  void end_turns();

  // ---- calls of several steps (chunks.cpp)
  /// Emits the body in a loop over all steps of the call, `at_once` steps a turn. Emits the body alone if a loop over
  /// steps is already around it, or if the call has one step.
  void over_steps(unsigned at_once, const std::function<void()>& body, unsigned side_by_side = 1);
  unsigned steps_in_vector(const std::vector<ir::ValueId>& values, const std::vector<Sum>& sums,
                           const Blocks& blocks) const;
  unsigned steps_in_rows(const Task& task) const;
  bool is_lanewise(ir::ValueId value, bool in_lanes) const;
  unsigned steps_for(const std::vector<Sum>& sums, const Blocks& blocks, unsigned side_by_side) const;
  void copy_states_before();
  void emit_stretch(const Stretch& stretch);
  void keep_states(const Task& task);
  Buffer next_state(ir::ValueId state);
  void give_stacks();

  // ---- the step (step.cpp)
  void begin(const std::string& name);
  void place_states();
  llvm::Value* is_backwards();
  void stage_inputs();
  bool needs_stage(ir::ValueId input) const;
  void give_outputs();
  void give_results();
  /// Copies rows between memories, exactly.
  void copy(const Buffer& from, const Buffer& to, const std::vector<int64_t>& sizes, DType dtype);
  using Piece = std::function<void(const std::vector<Coordinate>& at, unsigned lanes)>;
  void over_pieces(const std::vector<int64_t>& sizes, int64_t bytes, const Piece& piece);

  // ---- long steps (cuts.cpp)
  void cut_if_long(const std::string& name);

  // ---- rows replaced by an index (changes.cpp)
  /// Rows in the order of an index, and the index.
  struct Updates {
    ir::ValueId index, rows;
    Buffer index_at, rows_at;
    std::vector<Memory::Slot> taken;
  };
  bool is_changed_in_place(const ir::Op& op) const;
  void emit_change(const ir::Op& op);
  void emit_scatter(const ir::Op& op);
  void add_updates(const ir::Op& op, const Updates& updates, const Buffer& sums);
  Updates updates_of(const ir::Op& op);
  Buffer kept(ir::ValueId value, std::vector<Memory::Slot>& taken);
  /// Calls body(row, update) for each element of the index: the row of a table of so many rows that it names, and the
  /// update. An element that names none fails the step and counts as 0.
  void over_updates(const Updates& updates, int64_t rows,
                    const std::function<void(const Coordinate& row, const Buffer& update)>& body);
  void replace_rows(const Updates& updates, const Buffer& table, int64_t rows);
  Buffer from_row(const Buffer& buffer, const Coordinate& row);
  Buffer row_at(const Buffer& table, const Coordinate& row);

  const Bound& step_;
  const ir::Program& program_;
  const Plan& plan_;
  const Tasks& tasks_;
  const StoredWeights& weights_;
  const Target& target_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  llvm::Type* index_;
  llvm::Function* function_ = nullptr;
  llvm::Value *state_ = nullptr, *bad_ = nullptr;
  Memory memory_;
  std::map<ir::ValueId, Buffer> buffers_;
  std::set<ir::ValueId> scratch_;              ///< values whose memory is given back when nobody reads it any longer
  std::map<ir::ValueId, size_t> last_reader_;  ///< of values with memory, the last task; behind all of them: the caller
  std::map<ir::ValueId, std::pair<Ring, ir::ValueId>> rings_;  ///< by the new state: its ring and the old state
  std::map<std::pair<int64_t, int64_t>, Turn> turns_;          ///< by rows, and by how many the window moves
  /// By new state of which a step changes rows in place: what writes them.
  std::map<ir::ValueId, std::function<void(const Buffer& state)>> changes_;
  std::set<ir::ValueId> current_;  ///< values that the nest being emitted stores
  std::map<std::tuple<ir::ValueId, Place, unsigned>, llvm::Value*> known_;  ///< at a step of those at once
  std::map<ir::ValueId, int64_t> depths_;
  std::map<ir::ValueId, std::vector<ChainPart>> chains_;  ///< of the nest being emitted; empty: no chain
  std::set<ir::ValueId> in_no_chain_;                     ///< values within those that are none
  std::map<ir::ValueId, MovedLeaf> moved_leaves_;         ///< while a loop over terms is emitted
  Coordinate turn_;                                       ///< of that loop
  /// By value: whether no element is read twice, since the value has one reader, or all readers are slices.
  std::vector<bool> is_read_apart_;
  std::map<ir::ValueId, Rounded> rounded_;      ///< left operands whose rows are in 8 bits
  std::map<ir::ValueId, size_t> last_rounded_;  ///< the last task that multiplies them
  std::map<std::tuple<unsigned, llvm::Value*, llvm::Value*>, llvm::Value*> computed_;  ///< of coordinates
  std::map<std::pair<ir::ValueId, int64_t>, llvm::GlobalVariable*> constants_;
  std::map<llvm::Constant*, llvm::GlobalVariable*> globals_;
  std::vector<Sum>* recording_ = nullptr;     ///< where find_sums collects sums
  llvm::BasicBlock* recorded_in_ = nullptr;   ///< the block of the nest, while find_sums is aside
  int64_t direction_ = 0;                     ///< offset in a state of the flag whether blocks go backwards; 0: no flag
  llvm::Value* backwards_ = nullptr;          ///< what it says
  llvm::Value* block_column_ = nullptr;       ///< where the block being emitted begins; null: at 0
  int64_t first_column_ = 0;                  ///< of the nest being emitted
  llvm::Value* valid_ = nullptr;              ///< of the vector being emitted
  bool alone_ = false;                        ///< the nest being emitted has few vectors
  int64_t slack_ = 0;                         ///< elements that the block being emitted may read past an end
  int64_t steps_ = 1;                         ///< of the call being emitted
  llvm::Value* first_step_ = nullptr;         ///< of those being computed at once; null: 0
  unsigned at_once_ = 1, now_ = 0;            ///< how many there are, and the one being emitted
  unsigned side_by_side_ = 1;                 ///< steps in each vector: "a step" is then so many
  bool step_by_step_ = false;                 ///< a loop over the steps is around several nests
  std::set<ir::ValueId> is_where_read_next_;  ///< new states that their nests store where the next step reads them
};

}  // namespace weft::packages
