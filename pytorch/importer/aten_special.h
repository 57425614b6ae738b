#pragma once

#include "importer/aten_ops.h"

/// Elementwise ATen ops at whose derivatives 0 is multiplied by infinity, unless PyTorch's formula is used.
namespace weft::importer {

ir::ValueId sinc(const AtenCall& call);
ir::ValueId xlogy(const AtenCall& call);
ir::ValueId xlog1py(const AtenCall& call);
ir::ValueId entropy(const AtenCall& call);
/// (x, eps)
ir::ValueId logit(const AtenCall& call);
/// (x, target, weight, reduction)
ir::ValueId binary_cross_entropy(const AtenCall& call);

}  // namespace weft::importer
