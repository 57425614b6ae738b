// One step: places of the states, the nests, and results for the caller.
#include <algorithm>

#include "codegen/pointwise.h"
#include "packages/emit/emitter.h"

namespace weft::packages {

using ir::Op;
using ir::ValueId;
using llvm::Value;

/// A function (state, inputs, outputs) -> status.
void Emitter::begin(const std::string& name) {
  llvm::Type* pointer = b_.getPtrTy();
  auto* type = llvm::FunctionType::get(b_.getInt32Ty(), {pointer, pointer, pointer}, false);
  function_ = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, module_);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  function_->addFnAttr(llvm::Attribute::NoInline);
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", function_));
  state_ = function_->getArg(0);
  bad_ = variable(b_.getInt32(0));
}

llvm::Function* Emitter::emit_step(const std::string& name) {
  begin(name);
  llvm::Function* whole = function_;
  memory_.bytes = std::max<int64_t>(target_.vector_bytes, 8);  // the model's number comes first
  place_states();
  find_windows();
  stage_inputs();
  for (size_t task = 0; task < tasks_.tasks.size(); ++task) {
    cut_if_long(name);
    free_what_is_read_no_longer(task);
    emit_task(tasks_.tasks[task]);
  }
  current_.clear();
  known_.clear();
  computed_.clear();
  give_results();
  return whole;
}

/// Gives back the memory of values whose last reader comes before a task. States keep theirs.
void Emitter::free_what_is_read_no_longer(size_t task) {
  for (auto each = scratch_.begin(); each != scratch_.end();) {
    const auto reader = last_reader_.find(*each);
    if (reader != last_reader_.end() && reader->second >= task) {
      ++each;
      continue;
    }
    const Memory::Slot& slot = memory_.slots.at(*each);
    memory_.give_back(slot.offset, slot.bytes);
    each = scratch_.erase(each);
  }
  forget_rounded(task);
}

void Emitter::place_states() {
  for (size_t i = 0; i < step_.states(); ++i) {
    const ValueId state = program_.body.args[i];
    if (const std::optional<Ring> ring = ring_of(step_, i, plan_.steps)) {
      place_ring(i, *ring);
      continue;
    }
    const std::vector<int64_t> shape = sizes(state);
    const int64_t lanes = lanes_for(state), columns = shape.empty() ? 1 : shape.back();
    buffers_[state] = in_state(state, reserve(state, (columns + lanes - 1) / lanes * lanes));
  }
}

/// Whether this step takes blocks backwards: every second one since the state was created.
Value* Emitter::is_backwards() {
  if (backwards_ != nullptr) return backwards_;
  direction_ = memory_.bytes;
  memory_.bytes += std::max<int64_t>(target_.vector_bytes, 8);
  Value* word =
      b_.CreateAlignedLoad(b_.getInt32Ty(), b_.CreateGEP(b_.getInt8Ty(), state_, number(direction_)), llvm::Align(4));
  return backwards_ = b_.CreateICmpNE(word, b_.getInt32(0));
}

/// Whether an input must be copied to padded memory: it is read as vectors, of which the last may reach past the
/// input's end. A product reads single elements of its left operand, unless it rounds the operand to bytes.
bool Emitter::needs_stage(ValueId input) const {
  const std::vector<int64_t> shape = sizes(input);
  if (shape.empty() || shape.back() <= 1) return false;
  return std::ranges::any_of(program_.body.ops, [&](const Op& op) {
    if (std::ranges::find(op.operands, input) == op.operands.end()) return false;
    const bool is_left = is_product(step_, op) && op.operands[1] != input && !multiplies_bytes(step_, op);
    return !is_left && !(ir::is_join(op.code) && !tasks_.task_of.contains(op.results[0]));
  });
}

/// Inputs whose vectors are read are copied to memory that may be read past their end.
void Emitter::stage_inputs() {
  for (size_t i = 0; i < step_.inputs(); ++i) {
    const ValueId input = program_.body.args[step_.states() + i];
    const std::vector<int64_t> shape = sizes(input);
    Value* slot = b_.CreateConstGEP1_64(b_.getPtrTy(), function_->getArg(1), i);
    const Buffer given = dense(b_.CreateLoad(b_.getPtrTy(), slot), input);
    buffers_[input] = given;
    if (!needs_stage(input)) continue;
    const int64_t lanes = lanes_for(input);
    const Buffer staged = in_state(input, reserve(input, (shape.back() + lanes - 1) / lanes * lanes));
    over_steps(1, [&] { copy(given, staged, shape, dtype(input)); });
    buffers_[input] = staged;
  }
}

void Emitter::copy(const Buffer& from, const Buffer& to, const std::vector<int64_t>& sizes, DType dtype) {
  llvm::Type* element = codegen::memory_type(b_, dtype);
  over_pieces(sizes, size_of(dtype), [&](const std::vector<Coordinate>& at, unsigned lanes) {
    llvm::Type* type = llvm::FixedVectorType::get(element, lanes);
    const llvm::Align align(static_cast<uint64_t>(size_of(dtype)));
    b_.CreateAlignedStore(b_.CreateAlignedLoad(type, address(from, at), align), address(to, at), align);
  });
}

/// All elements of a tensor, in vectors along its rows of at most so many bytes an element that a register holds, and
/// nothing behind a row.
void Emitter::over_pieces(const std::vector<int64_t>& sizes, int64_t bytes, const Piece& piece) {
  if (sizes.empty()) return piece({}, 1);
  std::vector<int64_t> rows = sizes;
  rows.back() = 1;
  std::vector<Coordinate> at(sizes.size());
  loops(rows, 0, at, [&] {
    const int64_t most = std::max<int64_t>(target_.vector_bytes / bytes, 1);
    int64_t first = 0;
    for (int64_t lanes = most; lanes > 0; lanes /= 2) {
      const int64_t count = (sizes.back() - first) / lanes;
      std::vector<Coordinate> here = at;
      loop(count, 1, [&](Value* i) {
        here.back() = {count == 1 ? nullptr : b_.CreateMul(i, number(lanes)), first};
        piece(here, static_cast<unsigned>(lanes));
      });
      first += count * lanes;
    }
  });
}

/// The caller's memory for a value: its elements in order.
Buffer Emitter::dense(Value* base, ValueId value) {
  const std::vector<int64_t> shape = sizes(value);
  Buffer buffer{base, std::vector<int64_t>(shape.size(), 1), dtype(value)};
  for (size_t d = shape.size(); d-- > 1;) buffer.strides[d - 1] = buffer.strides[d] * shape[d];
  if (steps_ > 1) buffer.step = ir::element_count(program_.type(value).shape).constant() * size_of(dtype(value));
  return buffer;
}

void Emitter::give_outputs() {
  for (size_t i = step_.states(); i < program_.body.results.size(); ++i) {
    const ValueId result = program_.body.results[i];
    Value* slot = b_.CreateConstGEP1_64(b_.getPtrTy(), function_->getArg(2), i - step_.states());
    copy(buffers_.at(result), dense(b_.CreateLoad(b_.getPtrTy(), slot), result), sizes(result), dtype(result));
  }
}

/// The results to the caller, and new states in the place of the old. Nothing of both if the step has failed.
void Emitter::give_results() {
  llvm::BasicBlock* end = nullptr;
  if (tasks_.may_fail) {
    Value* bad = b_.CreateLoad(b_.getInt32Ty(), bad_);
    auto* good = llvm::BasicBlock::Create(b_.getContext(), "good", function_);
    end = llvm::BasicBlock::Create(b_.getContext(), "end", function_);
    b_.CreateCondBr(b_.CreateICmpEQ(bad, b_.getInt32(0)), good, end);
    b_.SetInsertPoint(good);
  }
  give_outputs();
  for (size_t i = 0; i < step_.states(); ++i) {
    const ValueId state = program_.body.args[i], made = program_.body.results[i];
    if (const auto change = changes_.find(made); change != changes_.end()) {
      change->second(buffers_.at(state));
      continue;
    }
    if (memory_.slots.at(state).offset == memory_.slots.at(made).offset) continue;
    copy(buffers_.at(made), buffers_.at(state), sizes(state), dtype(state));
  }
  end_turns();
  if (backwards_ != nullptr)
    b_.CreateAlignedStore(b_.CreateZExt(b_.CreateNot(backwards_), b_.getInt32Ty()),
                          b_.CreateGEP(b_.getInt8Ty(), state_, number(direction_)), llvm::Align(4));
  if (end != nullptr) {
    b_.CreateBr(end);
    b_.SetInsertPoint(end);
  }
  b_.CreateRet(b_.CreateLoad(b_.getInt32Ty(), bad_));
}

}  // namespace weft::packages
