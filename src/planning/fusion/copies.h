#pragma once

#include <unordered_map>
#include <vector>

#include "planning/lowering.h"

namespace weft::planning {

/// How each value of a program, over all its blocks, is computed and stored.
class Definitions {
 public:
  struct Definition {
    ir::OpCode code;
    bool view;            ///< nothing stores it: readers address the value that it is a view of
    bool last_dim_slice;  ///< a slice of columns
    bool several_places;  ///< its stage can store it to more than one place
    ir::ValueId source;   ///< its first operand, if any: the value that a view is of
  };

  explicit Definitions(const LoweringRules& rules) : rules_(rules), program_(rules.program()) { add(program_.body); }

  /// Null for an argument.
  const Definition* find(ir::ValueId value) const;
  /// The value in whose memory a reshape lies, through reshapes of reshapes; any other value itself.
  ir::ValueId reshaped(ir::ValueId value) const;
  void add(const ir::Op& op);

  bool is_view(ir::ValueId value) const;
  /// Whether the value's rows can be addressed: it has memory, is a slice of columns of memory, or joins such slices
  /// (LoweringRules::is_ranges).
  bool is_row_view(ir::ValueId value) const;
  /// Whether the value is a slice of a matrix of constant columns, which `pack` reads in place.
  bool is_matrix_slice(ir::ValueId value) const;
  /// The value whose columns this one is a slice of.
  ir::ValueId columns_of(ir::ValueId value) const;

 private:
  void add(const ir::Block& block);

  const LoweringRules& rules_;
  const ir::Program& program_;
  std::unordered_map<ir::ValueId, Definition> definitions_;
};

/// Tells the rules which concatenations of the block are views (LoweringRules::is_ranges), so that they are not copied.
/// A concatenation of column slices of one value is a view if all its readers are kernels that take several ranges of
/// columns.
void find_ranges(const ir::Block& block, const Definitions& definitions, LoweringRules& rules);

/// Inserts copies of two kinds of values of the block: those without memory that are read as memory, such as a
/// broadcast that a product reads, and results without memory of their own. (A program's result that reshapes a value
/// has that value's memory, unless another result has it or inputs are donated.) `in_place`: the block is a scan's
/// region, whose code stores a yielded value to every place that it is yielded to. Returns copies of values from around
/// the block; the caller inserts them there.
std::vector<ir::Op> insert_copies(ir::Program& program, ir::Block& block, Definitions& definitions,
                                  const LoweringRules& rules, bool in_place);

}  // namespace weft::planning
