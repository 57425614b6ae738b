#pragma once

#include <vector>

#include "ir/program.h"

namespace weft::passes {

/// Joins a hash with a further value.
void mix(size_t& hash, size_t value);
size_t hash_of(const ir::Attr& attr);
/// Whether attributes are equal. Floats are compared by their bits, so -0 differs from 0, and NaN equals NaN.
bool same(const ir::Attr& a, const ir::Attr& b);
bool same(const ir::Attrs& a, const ir::Attrs& b);

/// The values that an op reads: its operands, then the values from outside that its regions use, in order of use.
std::vector<ir::ValueId> reads(const ir::Op& op);

/// Whether two ops are equal but for the values that they read: code, attributes, types of operands and results, and
/// regions op by op. The values that they read then correspond one to one, in the order of reads().
bool same_form(const ir::Program& program, const ir::Op& a, const ir::Op& b);
/// Equal for ops of the same form.
size_t form_hash(const ir::Program& program, const ir::Op& op);

/// Whether the shape of `longer` is that of `shorter` with a dim of size 1 inserted there.
bool inserts_dim(const ir::Program& program, ir::ValueId shorter, ir::ValueId longer, int64_t dim);

}  // namespace weft::passes
