#pragma once

#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "codegen/access.h"
#include "codegen/columns.h"
#include "codegen/frame.h"

namespace weft::codegen {

/// Emits the elementwise ops of a fused stage for one vector of a row. Each operand is loaded once; each result with
/// targets is stored.
class StageElements {
 public:
  /// `tile`: the vector of a product's result that a view reads; null in a stage without products.
  using Tile = std::function<llvm::Value*(const planning::View& view)>;
  StageElements(Frame& frame, const planning::Stage& stage, Tile tile = nullptr);

  /// Goes to a row: computes the operands' addresses there, and loads operands that have one number a row. With `among`
  /// only operands with these roots are prepared; the others stay as they were.
  void at_row(llvm::Value* row, const std::function<bool(ir::ValueId root)>& among = nullptr);
  /// The same for a row of a group (planning::Stage::row_group).
  void at_row_of_group(llvm::Value* group, llvm::Value* within);
  /// The operands with rows that aren't whole cache lines, so that a vector straddles two lines.
  std::vector<planning::View> astride_lines() const;
  /// Asks for the vector of each view at a row and column, into the second-level cache.
  void expect(const std::vector<planning::View>& views, llvm::Value* row, llvm::Value* column);
  /// Goes to the vector that begins at a column.
  void at_column(llvm::Value* column);
  /// Starts the vector again with these values in registers, for the next step of a loop over one vector.
  void start_with(std::map<ir::ValueId, llvm::Value*> registers);
  /// An elementwise op or a concat.
  void emit(const ir::Op& op);

  llvm::Value* read(ir::ValueId operand);
  /// Stores a vector of the row to all targets of `result`, `skip` columns from the start of rows of `width` columns.
  void store(ir::ValueId result, llvm::Value* value, llvm::Value* width, llvm::Value* skip);

  /// To be called after all ops: emits the stores that may go past the caches (Frame::streamed), under one condition.
  void finish_column();

  Columns& columns() { return columns_; }

 private:
  using ViewKey = std::tuple<ir::ValueId, std::vector<int64_t>, std::vector<int64_t>>;

  void at_row(RowIndex index, const std::function<bool(ir::ValueId root)>& among);
  void prepare(ir::ValueId operand, RowIndex& index, const std::function<bool(ir::ValueId root)>& among);
  bool is_constant(ir::ValueId value) const;
  void store_concat(const ir::Op& op);

  /// A store of a vector at the column.
  struct Store {
    llvm::Value *row, *value;
    DType dtype;
    llvm::Value* next_slice;  ///< as Frame::next_slice, or null
  };
  void store(const Store& at);

  Frame& frame_;
  const planning::Stage& stage_;
  llvm::IRBuilder<>& b_;
  Tile tile_;
  Columns columns_;
  std::set<ir::ValueId> in_stage_;
  llvm::Value* row_ = nullptr;
  std::map<ViewKey, llvm::Value*> pointers_, scalars_, loaded_;
  std::map<llvm::Value*, llvm::Value*> next_slice_;  ///< by pointer, as Frame::next_slice
  std::map<ir::ValueId, llvm::Value*> registers_;
  std::vector<Store> streamed_;  ///< of this vector, not emitted yet
};

}  // namespace weft::codegen
