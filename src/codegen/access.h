#pragma once

#include <map>
#include <optional>
#include <vector>

#include "codegen/frame.h"
#include "planning/view.h"

namespace weft::codegen {

/// The index of the row at hand: flat over all leading dims of the domain, or split into an index for each of them.
class RowIndex {
 public:
  RowIndex(Frame& frame, const ir::Shape& domain, llvm::Value* row) : frame_(frame), domain_(domain), row_(row) {}
  /// Row `within` of the group of rows `group`; the last leading dim counts the rows of a group.
  RowIndex(Frame& frame, const ir::Shape& domain, llvm::Value* group, llvm::Value* within);
  llvm::Value* row() const { return row_; }
  /// Elements between the start of the root's memory and the view's first column in this row.
  llvm::Value* elements(const planning::View& view);

 private:
  llvm::Value* index(size_t dim);
  std::optional<ir::Dim> uniform_stride(const planning::View& view, const std::vector<ir::Dim>& strides) const;

  Frame& frame_;
  const ir::Shape& domain_;
  llvm::Value* row_;
  llvm::Value *group_ = nullptr, *within_ = nullptr;
  std::map<size_t, llvm::Value*> indices_;
};

}  // namespace weft::codegen
