#pragma once

#include "importer/aten_ops.h"

/// ATen ops that move, reduce and multiply. aten_ops.cpp has the elementwise ops and the table.
namespace weft::importer {

/// x with its dims permuted. If x is a transpose itself, the two permutations become one or none.
ir::ValueId permuted(const AtenCall& call, ir::ValueId x, std::vector<int64_t> perm);

ir::ValueId view(const AtenCall& call);
ir::ValueId expand(const AtenCall& call);
ir::ValueId t(const AtenCall& call);
ir::ValueId transpose(const AtenCall& call);
ir::ValueId permute(const AtenCall& call);
ir::ValueId slice(const AtenCall& call);
ir::ValueId select(const AtenCall& call);
ir::ValueId cat(const AtenCall& call);
ir::ValueId stack(const AtenCall& call);
ir::ValueId flip(const AtenCall& call);
ir::ValueId repeat(const AtenCall& call);
ir::ValueId roll(const AtenCall& call);
ir::ValueId constant_pad(const AtenCall& call);
ir::ValueId sum(const AtenCall& call);
ir::ValueId mean(const AtenCall& call);
ir::ValueId amax(const AtenCall& call);
ir::ValueId amin(const AtenCall& call);
ir::ValueId any(const AtenCall& call);
ir::ValueId all(const AtenCall& call);
/// The index of the first of the largest elements (for argmin the smallest); a NaN counts as the largest (smallest).
ir::ValueId argmax(const AtenCall& call);
ir::ValueId argmin(const AtenCall& call);
ir::ValueId mm(const AtenCall& call);
ir::ValueId addmm(const AtenCall& call);
ir::ValueId mv(const AtenCall& call);
ir::ValueId dot(const AtenCall& call);
ir::ValueId bmm(const AtenCall& call);
ir::ValueId baddbmm(const AtenCall& call);
ir::ValueId embedding(const AtenCall& call);
ir::ValueId embedding_backward(const AtenCall& call);
/// softmax or log_softmax of argument 0 over one dim.
ir::ValueId normalised(const AtenCall& call, int64_t dim, bool log);

}  // namespace weft::importer
