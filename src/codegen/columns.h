#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/frame.h"

namespace weft::codegen {

llvm::Type* vector_of(llvm::Type* element, int64_t lanes);

/// Loads, stores and masks of the vector at one column of a row.
class Columns {
 public:
  Columns(Frame& frame, const ir::Dim& width, int64_t lanes) : frame_(frame), width_(width), lanes_(lanes) {}

  /// Goes to a column; a vector that passes the row's end gets a mask.
  void at(llvm::Value* column);

  llvm::Value* mask() const { return mask_; }

  llvm::Value* load(llvm::Value* row, DType dtype);
  void store(llvm::Value* row, llvm::Value* value, DType dtype);
  /// Stores past the caches. The vector must be a whole cache line, without a mask.
  void stream(llvm::Value* row, llvm::Value* value, DType dtype);
  /// Where the vector at the column is.
  llvm::Value* address(llvm::Value* row, DType dtype);
  /// Asks for the cache line of the byte `bytes` behind an address, into the second-level cache. It may be outside any
  /// memory.
  void prefetch(llvm::Value* address, llvm::Value* bytes, bool to_write);

 private:
  Frame& frame_;
  ir::Dim width_;
  int64_t lanes_;
  llvm::Value* column_ = nullptr;
  llvm::Value* mask_ = nullptr;  // null: all lanes
};

/// The end of the loop over rows: `last`, or `first` if rows have no elements, so that the loop does nothing.
llvm::Value* end_of_rows(Frame& frame, const ir::Dim& columns, llvm::Value* first, llvm::Value* last);

}  // namespace weft::codegen
