#pragma once

#include <span>

#include "ir/type.h"

namespace weft::planning {

/// The product of two sizes, for sizes that are only estimated, or not needed where they don't fit. A number that
/// overflows becomes the largest there is.
ir::Dim bounded_product(const ir::Dim& a, const ir::Dim& b);

/// The product of the dims, as bounded_product.
ir::Dim bounded_count(std::span<const ir::Dim> dims);

}  // namespace weft::planning
