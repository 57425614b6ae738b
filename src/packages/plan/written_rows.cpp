#include "packages/plan/written_rows.h"

namespace weft::packages {

WrittenRows written_rows(ir::OpCode code) {
  if (code == ir::OpCode::kScatter) return WrittenRows::kReplaced;
  return code == ir::OpCode::kScatterAdd ? WrittenRows::kAdded : WrittenRows::kNone;
}

}  // namespace weft::packages
