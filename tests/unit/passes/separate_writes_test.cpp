// separate_writes: random chains of writes into one tensor compute the same bits without the chain.

#include "passes/rolling/separate_writes.h"

#include <random>

#include "interpreter/interpreter.h"
#include "ir/builder.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "programs.h"
#include "random_program.h"

namespace weft::separate_writes_test {
namespace {

using ir::ValueId;

/// A program of random writes and reads along a dim of a tensor.
class RandomWrites {
 public:
  explicit RandomWrites(uint64_t seed) : random_(seed), builder_(program_, program_.body) {
    dim_ = draw(0, 1);
    rows_ = draw(1, 9);
    program_.name = "writes";
    y_ = program_.new_value(type(rows_));
    program_.body.args = {y_};
    const int64_t writes = draw(1, 12);
    for (int64_t i = 0; i < writes; ++i) write();
    program_.body.results = {y_, read()};
    if (draw(0, 1) == 1)
      program_.body.results.push_back(values_[static_cast<size_t>(draw(0, std::ssize(values_) - 1))]);
  }

  const ir::Program& program() const { return program_; }

 private:
  int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution(low, high)(random_); }
  ir::Type type(int64_t rows) const { return {DType::kF64, dim_ == 0 ? ir::Shape{rows, 3} : ir::Shape{3, rows}}; }

  ValueId sin(ValueId v) { return builder_.emit(ir::OpCode::kSin, {v}); }

  /// Some rows of the tensor as it is.
  ValueId read() {
    const int64_t start = draw(0, rows_ - 1), limit = draw(start + 1, rows_);
    return builder_.slice(y_, dim_, start, limit);
  }

  void write() {
    const ValueId rows = sin(read());
    const int64_t count = program_.type(rows).shape[static_cast<size_t>(dim_)].constant(),
                  start = draw(0, rows_ - count);
    std::vector<ValueId> parts;
    if (start > 0) parts.push_back(builder_.slice(y_, dim_, 0, start));
    parts.push_back(rows);
    if (start + count < rows_) parts.push_back(builder_.slice(y_, dim_, start + count, rows_));
    values_.push_back(y_);
    y_ = parts.size() == 1 ? parts[0] : builder_.concat(parts, dim_);
    if (draw(0, 9) == 0) y_ = sin(y_);  // reads all of it
  }

  std::mt19937_64 random_;
  ir::Program program_;
  ir::Builder builder_;
  int64_t dim_, rows_;
  ValueId y_;
  std::vector<ValueId> values_;  ///< what the tensor was before each write
};

TEST(SeparateWrites, RandomWritesComputeTheSame) {
  int found = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const ir::Program program = RandomWrites(seed).program();
    SCOPED_TRACE(fmt::format("{}\n{}", seed, ir::print(program)));
    ir::verify(program);
    const std::optional<ir::Program> separated = passes::separate_writes(program);
    if (!separated) continue;
    ++found;
    SCOPED_TRACE(ir::print(*separated));
    ASSERT_NO_THROW(ir::verify(*separated));
    const testing::Arrays inputs = testing::random_inputs(program, {}, seed);
    ASSERT_EQ(testing::difference(interpreter::evaluate(*separated, inputs), interpreter::evaluate(program, inputs)),
              0);
  }
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace weft::separate_writes_test
