#pragma once

#include "importer/aten_ops.h"

/// The ATen ops that read or write by index. An index outside its dim is the user's error when the program runs.
namespace weft::importer {

ir::ValueId index_select(const AtenCall& call);
ir::ValueId gather(const AtenCall& call);
/// x[i, :, j], where the indices are integers (a mask's result has a size that only its data tell).
ir::ValueId index(const AtenCall& call);
ir::ValueId index_put(const AtenCall& call);
ir::ValueId scatter(const AtenCall& call);
ir::ValueId scatter_add(const AtenCall& call);
ir::ValueId index_add(const AtenCall& call);
ir::ValueId index_copy(const AtenCall& call);
ir::ValueId index_fill(const AtenCall& call);
ir::ValueId select_scatter(const AtenCall& call);
ir::ValueId slice_scatter(const AtenCall& call);

/// Selects element `index` (negative: from the end) of dim `dim`, whose size is a symbol. The result lacks the dim.
ir::ValueId select_symbolic(const AtenCall& call, ir::ValueId x, int64_t dim, int64_t index);

}  // namespace weft::importer
