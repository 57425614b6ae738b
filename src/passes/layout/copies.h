#pragma once

#include <unordered_map>
#include <vector>

#include "ir/program.h"

namespace weft::passes {

/// How the values of a program are made, over all its blocks.
class Definitions {
 public:
  struct Definition {
    ir::OpCode code;
    bool view;            ///< nothing stores it: readers address what it is a view of
    bool last_dim_slice;  ///< of the columns
    bool several_places;  ///< its stage can store it to more than one place
    ir::ValueId source;   ///< its first operand, if it has any: what a view is of
  };

  explicit Definitions(const ir::Program& program) : program_(program) { add(program.body); }

  /// Null for an argument.
  const Definition* find(ir::ValueId value) const;
  void add(const ir::Op& op);

  bool is_view(ir::ValueId value) const;
  /// Whether the value is rows of columns: memory, a slice of the columns of memory, or what mark_ranges has marked.
  bool is_row_view(ir::ValueId value) const;
  /// Whether the value is a slice of a matrix of constant columns, which `pack` reads in place.
  bool is_matrix_slice(ir::ValueId value) const;
  /// What the value is a slice of columns of.
  ir::ValueId columns_of(ir::ValueId value) const;

 private:
  void add(const ir::Block& block);

  const ir::Program& program_;
  std::unordered_map<ir::ValueId, Definition> definitions_;
};

/// Joined columns of one value's memory that only kernels read which take ranges of columns as they are: the
/// concatenation becomes a view, marked `ranges`.
void mark_ranges(const ir::Program& program, ir::Block& block, const Definitions& definitions);

/// Gives memory of its own, by a copy, to every value of the block that will be read as memory but has none. `in_place`
/// says that what the block yields is stored by the scan's own code, to as many places as it is yielded to. Returns
/// copies of values from around the block that it reads: they are to be made there.
std::vector<ir::Op> insert_copies(ir::Program& program, ir::Block& block, Definitions& definitions, bool in_place);

}  // namespace weft::passes
