#include "resident/choice.h"

#include <fmt/format.h>

#include "ir/program.h"

namespace weft::resident {
namespace {

// Measured with GRUs of 64 to 1,024 units and convolutions of 64 and 256 channels, 1 to 64 rows, on one core with
// AVX-512. A call of the engine takes some 8 us more than a call of a package, but the engine's products of several
// rows take some 2/3 of the package's time. So the engine is faster from a million multiply-adds on. Products of single
// rows read each weight once, so that both take the same time once the weights come from memory. There the engine's
// threads share the columns.
constexpr int64_t kMostProducts = int64_t{1} << 20, kMostProductsOfRows = int64_t{1} << 22;
/// How many multiply-adds take the time of copying one byte of a history. For a batch the engine copies histories at
/// each step, and a package doesn't.
constexpr int64_t kProductsOfByte = 8;
/// The most bytes of constants, for the most part indexed tables. An object contains its constants.
constexpr int64_t kMostConstants = int64_t{1} << 25;
/// The most steps of loops in a step. A package has each of them written out, which takes 30 to 100 ms to compile.
constexpr int64_t kMostWrittenOut = 8;

/// What a step computes.
struct Work {
  int64_t products = 0;     ///< multiply-adds
  int64_t written_out = 0;  ///< steps of loops
};

int64_t products_of(const ir::Program& program, const ir::Op& op) {
  if (ir::info(op.code).op_class != ir::OpClass::kProduct) return 0;
  const ir::Shape& left = program.type(op.operands[0]).shape;
  int64_t products = ir::element_count(program.type(op.results[0]).shape).constant();
  for (size_t dim : ir::summed_dims(op, left.size())) products *= left[dim].constant();
  return products;
}

void add(const ir::Program& program, const ir::Block& block, int64_t times, Work& work) {
  for (const ir::Op& op : block.ops) {
    work.products += times * products_of(program, op);
    int64_t inner = times;
    if (op.code == ir::OpCode::kScan) {
      const ir::ScanView scan(op);
      if (scan.ragged) continue;  // which packages refuse
      inner *= scan.length.constant();
      work.written_out += inner;
    }
    for (const ir::Block& region : op.regions) add(program, region, inner, work);
  }
}

int64_t bytes_of(const std::vector<interpreter::Array>& arrays) {
  int64_t bytes = 0;
  for (const interpreter::Array& array : arrays) bytes += static_cast<int64_t>(array.bytes.size());
  return bytes;
}

int64_t elements_of(const std::vector<interpreter::Array>& arrays) {
  int64_t elements = 0;
  for (const interpreter::Array& array : arrays) elements += array.count();
  return elements;
}

}  // namespace

std::string why_engine(const packages::StepModel& model) {
  Work work;
  add(model.program, model.program.body, 1, work);
  if (work.written_out > kMostWrittenOut)
    return fmt::format("it has loops of {} steps, which a package would have written out", work.written_out);
  if (const int64_t bytes = bytes_of(model.weights); bytes > kMostConstants)
    return fmt::format("it has {} MB of weights and tables", bytes >> 20);
  const bool is_of_rows = work.products < 2 * elements_of(model.weights);
  const int64_t most = (is_of_rows ? kMostProductsOfRows : kMostProducts) + kProductsOfByte * bytes_of(model.states);
  if (work.products > most)
    return fmt::format("a step has {} multiply-adds, which the engine is sooner done with", work.products);
  return {};
}

}  // namespace weft::resident
