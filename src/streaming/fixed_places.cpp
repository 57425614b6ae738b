#include "streaming/fixed_places.h"

#include <cmath>
#include <numeric>
#include <unordered_map>

#include "ir/builder.h"
#include "passes/rewrite.h"
#include "passes/simplification/folded.h"

namespace weft::streaming {

using ir::Block;
using ir::Builder;
using ir::Op;
using ir::OpCode;
using ir::ValueId;

namespace {

constexpr int64_t kMostNumbers = 4096;
constexpr size_t kMostSlices = 64;

class Picking {
 public:
  Picking(ir::Program& program, const Lengths& lengths) : program_(program), lengths_(lengths) {}

  void run(Block& block) {
    std::vector<Op> ops = std::move(block.ops);
    block.ops.clear();
    for (Op& op : ops) {
      passes::substitute(op, replaced_);
      for (Block& region : op.regions) {
        run(region);
        move_out(region, block.ops);
      }
      learn(op);
      if (!pick(op, block)) block.ops.push_back(std::move(op));
    }
    for (ValueId& result : block.results) result = replaced_(result);
  }

 private:
  using Numbers = std::vector<double>;

  bool is_timed(ValueId value) const { return lengths_.mentions(program_.type(value)); }

  std::optional<int64_t> size_of(ValueId value) const {
    int64_t size = 1;
    for (const ir::Dim& dim : program_.type(value).shape) {
      if (!dim.is_constant()) return std::nullopt;
      size *= dim.constant();
    }
    return size;
  }

  /// Remembers the op's result if it is a few integers that are known.
  void learn(const Op& op) {
    if (op.results.size() != 1 || is_floating(program_.type(op.results[0]).dtype)) return;
    const std::optional<int64_t> size = size_of(op.results[0]);
    if (!size || *size > kMostNumbers) return;
    if (std::optional<Numbers> numbers = numbers_of(op, static_cast<size_t>(*size)))
      numbers_[op.results[0]] = std::move(*numbers);
  }

  std::optional<Numbers> numbers_of(const Op& op, size_t size) const {
    if (op.code == OpCode::kConstant) return Numbers(size, op.attr<double>("value"));
    if (op.code == OpCode::kIota && program_.type(op.results[0]).rank() == 1) {
      Numbers numbers(size);
      std::iota(numbers.begin(), numbers.end(), 0);
      return numbers;
    }
    std::vector<const Numbers*> operands;
    for (ValueId operand : op.operands) {
      const auto known = numbers_.find(operand);
      if (known == numbers_.end()) return std::nullopt;
      operands.push_back(&known->second);
    }
    if (operands.empty()) return std::nullopt;
    if (op.code == OpCode::kReshape || op.code == OpCode::kCast) return *operands[0];
    if (op.code == OpCode::kBroadcast && operands[0]->size() == 1) return Numbers(size, operands[0]->front());
    if (ir::info(op.code).op_class != ir::OpClass::kElementwise || operands.size() > 2) return std::nullopt;
    Numbers numbers;
    for (size_t i = 0; i < size; ++i) {
      const std::optional<double> number = passes::folded(op.code, (*operands[0])[i], (*operands.back())[i]);
      if (!number || *number != std::floor(*number)) return std::nullopt;  // a quotient of integers
      numbers.push_back(*number);
    }
    return numbers;
  }

  /// Writes a gather of steps by known numbers as slices.
  bool pick(const Op& op, Block& block) {
    if (op.code != OpCode::kGather || !lengths_.mentions(program_.type(op.operands[0]).shape.at(0))) return false;
    const auto known = numbers_.find(op.operands[1]);
    if (known == numbers_.end() || known->second.empty()) return false;
    std::vector<std::pair<int64_t, int64_t>> runs;  // of neighbouring steps: the first, and the one behind the last
    for (double number : known->second) {
      if (number < 0) return false;
      const auto place = static_cast<int64_t>(number);
      if (!runs.empty() && runs.back().second == place)
        ++runs.back().second;
      else
        runs.emplace_back(place, place + 1);
    }
    if (runs.size() > kMostSlices) return false;
    const size_t first = block.ops.size();
    Builder builder(program_, block);
    std::vector<ValueId> parts;
    for (auto [start, limit] : runs) parts.push_back(builder.slice(op.operands[0], 0, start, limit));
    const ValueId rows = parts.size() == 1 ? parts[0] : builder.concat(parts, 0);
    const ir::Shape shape = program_.type(op.results[0]).shape;
    replaced_.set(op.results[0], builder.reshape(rows, shape));
    passes::copy_note(op, std::span(block.ops).subspan(first));
    return true;
  }

  /// Moves what the region reads of a sequence, and nothing of its own, in front of it.
  void move_out(Block& region, std::vector<Op>& before) {
    passes::ValueSet own = passes::defined_in(region), moved;
    std::vector<Op> left;
    for (Op& op : region.ops) {
      bool is_fixed = op.regions.empty(), reads_steps = false;
      for (ValueId operand : op.operands) {
        is_fixed &= !own.contains(operand);
        reads_steps |= is_timed(operand) || moved.contains(operand);
      }
      if (!is_fixed || !reads_steps || ir::traits_of(op.code).fails != ir::Fails::kNever) {
        left.push_back(std::move(op));
        continue;
      }
      for (ValueId result : op.results) {
        own.erase(result);
        moved.insert(result);
      }
      before.push_back(std::move(op));
    }
    region.ops = std::move(left);
  }

  ir::Program& program_;
  const Lengths& lengths_;
  passes::Substitution replaced_;
  std::unordered_map<ValueId, Numbers> numbers_;
};

}  // namespace

void fixed_places(ir::Program& program, const Lengths& lengths) { Picking(program, lengths).run(program.body); }

}  // namespace weft::streaming
