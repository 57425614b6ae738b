#pragma once

#include <map>
#include <optional>
#include <vector>

#include "codegen/frame.h"

namespace weft::codegen {

/// The addressing of a value from a domain: which element of the memory of `root` an element of the domain reads. The
/// index of dim j of `root` is `start[j]` plus the index of domain dim `from[j]`, or `start[j]` alone if from[j] is -1.
struct View {
  ir::ValueId root = ir::kNoValue;
  std::vector<int64_t> from;
  std::vector<int64_t> start;
  int64_t slices = 0;             ///< the number of slices that were followed,
  const ir::Op* slice = nullptr;  ///< and the last of them
  bool plain = true;              ///< only slices were followed
};

/// Follows broadcasts and slices from `value`, which has the domain's shape, to a value in memory, a constant or a
/// register.
View resolve(const Schedule& schedule, ir::ValueId value, const ir::Shape& domain);

/// The index of the row at hand: flat over all leading dims of the domain, or split into an index for each of them.
class RowIndex {
 public:
  RowIndex(Frame& frame, const ir::Shape& domain, llvm::Value* row) : frame_(frame), domain_(domain), row_(row) {}
  llvm::Value* row() const { return row_; }
  /// Elements between the start of the root's memory and the view's first column in this row.
  llvm::Value* elements(const View& view);

 private:
  llvm::Value* index(size_t dim);
  std::optional<ir::Dim> uniform_stride(const View& view, const std::vector<ir::Dim>& strides) const;

  Frame& frame_;
  const ir::Shape& domain_;
  llvm::Value* row_;
  std::map<size_t, llvm::Value*> indices_;
};

/// True iff the view's last dim follows the last dim of a domain of rank `rank`; else it is one element a row.
bool has_columns(const View& view, int64_t rank);

}  // namespace weft::codegen
