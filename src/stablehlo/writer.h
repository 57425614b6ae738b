#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "ir/program.h"
#include "stablehlo/emitter.h"

namespace weft::stablehlo {

/// The rows of a step of a ragged scan. StableHLO's sizes are fixed, so a step computes all rows of the batch. Results
/// in rows from `count` on are not kept, and ops that sum over rows leave these rows out.
struct StepRows {
  ir::Ragged ragged;
  Tensor count;  ///< i64[]
};

/// A program's values and blocks on their way to text. Lowerings (lowerings.h) ask it for operands and set results.
class Writer {
 public:
  Writer(const ir::Program& program, const ir::Bindings& bindings);

  Emitter& emit() { return emitter_; }
  std::string run();

  const ir::Program& program() const { return program_; }
  const ir::Type& ir_type(ir::ValueId id) const { return program_.type(id); }
  TensorType type(ir::ValueId id) const;
  int64_t size(const ir::Dim& dim) const;
  const Tensor& value(ir::ValueId id) const;
  void set(ir::ValueId id, Tensor tensor);
  /// Marks a result that can't be written: it is an error only if it is read. `why` ends the message.
  void refuse(ir::ValueId id, std::string why) { refused_[id] = std::move(why); }

  void write_ops(const ir::Block& block);
  std::vector<Tensor> values(std::span<const ir::ValueId> ids) const;

  /// A while whose loop values are `own`, followed by what the regions read from outside. `condition` and `body` write
  /// the ops of a region, given the own values at its start, and return what it yields. Returns the own values behind
  /// the loop. Values from outside are passed through the loop, since not every reader of StableHLO lets a region see
  /// them.
  using Part = std::function<std::vector<Tensor>(std::span<const Tensor> own)>;
  std::vector<Tensor> write_while(std::span<const Tensor> own, std::span<const ir::Block* const> reads,
                                  const Part& condition, const Part& body);

  /// The ragged step being written whose rows are the value's leading dim; null if there is none.
  const StepRows* step_rows_of(ir::ValueId id) const;
  void enter_rows(StepRows rows) { rows_.push_back(std::move(rows)); }
  void leave_rows() { rows_.pop_back(); }
  /// The tensor, with `rest` in the rows that the step does not have.
  Tensor masked(const StepRows& rows, const Tensor& tensor, const Tensor& rest);
  /// The value of an operand, with zeros in the rows that a ragged step does not have.
  Tensor zero_beyond(ir::ValueId id);

 private:
  void write_op(const ir::Op& op);
  std::string arguments();

  const ir::Program& program_;
  const ir::Bindings& bindings_;
  Emitter emitter_;
  std::vector<std::optional<Tensor>> values_;  ///< by value
  std::map<ir::ValueId, std::string> refused_;
  std::vector<StepRows> rows_;  ///< of the ragged scans around, the innermost last
};

}  // namespace weft::stablehlo
