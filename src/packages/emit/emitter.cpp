#include "packages/emit/emitter.h"

#include <algorithm>
#include <bit>

#include "codegen/isa.h"
#include "codegen/pointwise.h"

namespace weft::packages {

using ir::ValueId;
using llvm::Value;

namespace {

std::vector<bool> read_apart(const ir::Program& program) {
  std::vector<int64_t> readers(program.values.size(), 0), others(program.values.size(), 0);  // that are no slices
  for (ValueId result : program.body.results) ++readers[result], ++others[result];
  for (const ir::Op& op : program.body.ops)
    for (ValueId operand : op.operands) {
      ++readers[operand];
      if (!ir::is_range(op.code)) ++others[operand];
    }
  std::vector<bool> found;
  for (size_t i = 0; i < readers.size(); ++i) found.push_back(readers[i] <= 1 || others[i] == 0);
  return found;
}

}  // namespace

Emitter::Emitter(const Bound& step, const Plan& plan, const StoredWeights& weights, const Target& target,
                 llvm::Module& module)
    : step_(step),
      program_(step.program()),
      plan_(plan),
      tasks_(plan.tasks),
      weights_(weights),
      target_(target),
      module_(module),
      b_(module.getContext()),
      index_(module.getDataLayout().getIntPtrType(module.getContext())),
      is_read_apart_(read_apart(program_)) {
  for (size_t task = 0; task < tasks_.tasks.size(); ++task)
    for (ValueId value : tasks_.tasks[task].reads) last_reader_[value] = task;
  for (ValueId result : program_.body.results) last_reader_[result] = tasks_.tasks.size();
  for (size_t task = 0; task < tasks_.tasks.size(); ++task)
    for (ValueId left : rounded_for(tasks_.tasks[task])) last_rounded_[left] = task;
}

void Emitter::loop(int64_t count, int64_t step, const Body& body) {
  if (count <= step) {
    if (count > 0) body(number(0));
    return;
  }
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* inside = llvm::BasicBlock::Create(b_.getContext(), "loop", function_);
  auto* behind = llvm::BasicBlock::Create(b_.getContext(), "behind", function_);
  b_.CreateBr(inside);
  b_.SetInsertPoint(inside);
  llvm::PHINode* i = b_.CreatePHI(index_, 2);
  i->addIncoming(number(0), before);
  body(i);
  Value* next = b_.CreateAdd(i, number(step), "", true, true);
  i->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, number(count)), inside, behind);
  b_.SetInsertPoint(behind);
}

void Emitter::loops(const std::vector<int64_t>& sizes, size_t dim, std::vector<Coordinate>& at,
                    const std::function<void()>& body) {
  if (dim == sizes.size()) return body();
  if (sizes[dim] == 1) return loops(sizes, dim + 1, at, body);
  const Coordinate before = at[dim];
  loop(sizes[dim], 1, [&](Value* i) {
    const auto scope = std::pair(known_, computed_);  // values computed inside the loop aren't available after it
    at[dim] = {i, before.offset};
    loops(sizes, dim + 1, at, body);
    std::tie(known_, computed_) = scope;
  });
  at[dim] = before;
}

Value* Emitter::sum(const Coordinate& coordinate) {
  if (coordinate.base == nullptr) return number(coordinate.offset);
  return coordinate.offset == 0 ? coordinate.base : index(llvm::Instruction::Add, coordinate.base, coordinate.offset);
}

/// Arithmetic on coordinates. Returns the same value for the same operands, since places are known by their
/// coordinates. While find_sums runs, the arithmetic is emitted where the nest is, not in the block that find_sums
/// emits into.
Value* Emitter::index(llvm::Instruction::BinaryOps code, Value* a, Value* b) {
  const auto is_aside = [&](Value* value) {
    const auto* made = llvm::dyn_cast<llvm::Instruction>(value);
    return recorded_in_ != nullptr && made != nullptr && made->getParent() == b_.GetInsertBlock();
  };
  if (is_aside(a) || is_aside(b))
    return b_.CreateBinOp(code, a, b);  // an operand is computed here, from a loaded
                                        // index
  Value*& known = computed_[{code, a, b}];
  if (known != nullptr) return known;
  llvm::IRBuilder<> there(b_.getContext());
  there.SetInsertPoint(recorded_in_ != nullptr ? recorded_in_ : b_.GetInsertBlock());
  return known = there.CreateBinOp(code, a, b);
}

Value* Emitter::address(const Buffer& buffer, const std::vector<Coordinate>& at) {
  const int64_t size = size_of(buffer.dtype);
  int64_t constant = 0;
  Value* variable = nullptr;
  if (buffer.step != 0) {
    constant = static_cast<int64_t>(now_) * side_by_side_ * buffer.step;
    if (first_step_ != nullptr) variable = b_.CreateMul(first_step_, number(buffer.step));
  }
  for (size_t i = 0; i < at.size(); ++i) {
    constant += at[i].offset * buffer.strides[i] * size;
    if (at[i].base == nullptr) continue;
    Value* scaled = b_.CreateMul(at[i].base, number(buffer.strides[i] * size));
    variable = variable ? b_.CreateAdd(variable, scaled) : scaled;
  }
  Value* address = variable ? b_.CreateGEP(b_.getInt8Ty(), buffer.base, variable) : buffer.base;
  return constant == 0 ? address : b_.CreateGEP(b_.getInt8Ty(), address, number(constant));
}

llvm::FixedVectorType* Emitter::register_type(DType dtype, unsigned lanes) {
  return llvm::FixedVectorType::get(codegen::register_type(b_, dtype), lanes * side_by_side_);
}

/// One element in all lanes; with several steps in a vector, each step's element in the lanes of its step.
Value* Emitter::splat(Value* value, unsigned lanes) {
  auto* type = llvm::cast<llvm::FixedVectorType>(value->getType());
  if (type->getNumElements() == lanes * side_by_side_) return value;
  internal_check(type->getNumElements() == side_by_side_, "a vector is no single element");
  if (side_by_side_ == 1) return b_.CreateVectorSplat(lanes, b_.CreateExtractElement(value, uint64_t{0}));
  // Of what was taken from a longer vector, one shuffle: of two, LLVM makes a load for each step.
  const auto* taken = llvm::dyn_cast<llvm::ShuffleVectorInst>(value);
  const bool is_one = taken != nullptr && llvm::isa<llvm::PoisonValue>(taken->getOperand(1));
  std::vector<int> from;
  for (unsigned i = 0; i < lanes * side_by_side_; ++i) {
    const auto step = static_cast<int>(i / lanes);
    from.push_back(is_one ? taken->getMaskValue(i / lanes) : step);
  }
  return b_.CreateShuffleVector(is_one ? taken->getOperand(0) : value, from);
}

/// What all steps in a vector share.
Value* Emitter::repeated(Value* vector) {
  if (side_by_side_ == 1) return vector;
  const unsigned count = llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements();
  std::vector<int> from;
  for (unsigned i = 0; i < count * side_by_side_; ++i) from.push_back(static_cast<int>(i % count));
  return b_.CreateShuffleVector(vector, from);
}

Value* Emitter::concatenated(const std::vector<Value*>& parts) {
  const auto count = static_cast<int>(llvm::cast<llvm::FixedVectorType>(parts[0]->getType())->getNumElements());
  if (parts.size() == 1) return parts[0];
  std::vector<Value*> halves;
  std::vector<int> all(static_cast<size_t>(2 * count));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  for (size_t i = 0; i < parts.size(); i += 2) halves.push_back(b_.CreateShuffleVector(parts[i], parts[i + 1], all));
  return concatenated(halves);
}

/// Whether a coordinate is its offset.
bool Emitter::is_known(const Coordinate& at) {
  const auto* base = llvm::dyn_cast_or_null<llvm::ConstantInt>(at.base);
  return at.base == nullptr || (base != nullptr && base->isZero());
}

/// A vector of several steps: what they share, neighbours in memory, or a load for each step.
Value* Emitter::load_steps(const Buffer& buffer, const Place& place, const std::vector<int64_t>& sizes) {
  const unsigned steps = side_by_side_;
  const auto one_step = [&](int64_t step) {
    Buffer there = buffer;
    if (step > 0) there.base = b_.CreateGEP(b_.getInt8Ty(), buffer.base, number(step * buffer.step));
    there.base = address({there.base, {}, there.dtype, buffer.step}, {});
    there.step = 0;
    side_by_side_ = 1;
    Value* loaded = load(there, place, sizes);
    side_by_side_ = steps;
    return loaded;
  };
  if (buffer.step == 0) return repeated(one_step(0));
  const int64_t size = size_of(buffer.dtype), row = buffer.step / size;
  if (buffer.dtype != DType::kI8 && row * size == buffer.step) {
    if (row == place.lanes) {
      auto* type = llvm::FixedVectorType::get(codegen::memory_type(b_, buffer.dtype), place.lanes * steps);
      Value* loaded = b_.CreateAlignedLoad(type, address(buffer, place.at), llvm::Align(static_cast<uint64_t>(size)));
      return codegen::emit_from_memory(b_, loaded, buffer.dtype);
    }
    const bool is_in_row = place.lanes == 1 && !place.at.empty() && buffer.strides.back() == 1 &&
                           is_known(place.at.back()) && place.at.back().offset < row;
    if (is_in_row && row * size <= target_.vector_bytes) return load_rows(buffer, place);
  }
  std::vector<Value*> all;
  for (unsigned step = 0; step < steps; ++step) all.push_back(one_step(step));
  return concatenated(all);
}

/// One element of a row, for several steps whose rows are neighbours in memory. Loads these rows whole, since their
/// other elements are needed too.
Value* Emitter::load_rows(const Buffer& buffer, const Place& place) {
  const auto row = static_cast<unsigned>(buffer.step / size_of(buffer.dtype));
  auto* type = llvm::FixedVectorType::get(codegen::memory_type(b_, buffer.dtype), row * side_by_side_);
  std::vector<Coordinate> begin = place.at;
  begin.back() = {};
  Value* rows = b_.CreateAlignedLoad(type, address(buffer, begin), llvm::Align(size_of(buffer.dtype)));
  std::vector<int> from;
  for (unsigned step = 0; step < side_by_side_; ++step)
    from.push_back(static_cast<int>(step * row) + static_cast<int>(place.at.back().offset));
  return b_.CreateShuffleVector(codegen::emit_from_memory(b_, rows, buffer.dtype), from);
}

Value* Emitter::load(const Buffer& buffer, const Place& place, const std::vector<int64_t>& sizes) {
  if (side_by_side_ > 1) return load_steps(buffer, place, sizes);
  if (place.lane >= 0 && buffer.strides[static_cast<size_t>(place.lane)] != 1) return load_lanes(buffer, place, sizes);
  if (buffer.dtype == DType::kI8) return load_weights(address(buffer, place.at), buffer.dtype, place.lanes, 1);
  llvm::Type* type = llvm::FixedVectorType::get(codegen::memory_type(b_, buffer.dtype), place.lanes);
  Value* loaded = b_.CreateAlignedLoad(type, address(buffer, place.at), llvm::Align(size_of(buffer.dtype)));
  return codegen::emit_from_memory(b_, loaded, buffer.dtype);
}

/// Loads a vector element by element. Lanes behind the end of the dim repeat the last element.
Value* Emitter::load_lanes(const Buffer& buffer, const Place& place, const std::vector<int64_t>& sizes) {
  const auto dim = static_cast<size_t>(place.lane);
  const DType in_register = buffer.dtype == DType::kI8 ? DType::kF32 : buffer.dtype;  // weights: see load_weights
  Value* all = llvm::PoisonValue::get(register_type(in_register, place.lanes));
  for (unsigned i = 0; i < place.lanes; ++i) {
    Place one{place.at, -1, 1};
    one.at[dim].offset += i;
    if (one.at[dim].base == nullptr) {
      one.at[dim].offset = std::min(one.at[dim].offset, sizes[dim] - 1);
    } else {
      Value *at = sum(one.at[dim]), *last = number(sizes[dim] - 1);
      one.at[dim] = {b_.CreateSelect(b_.CreateICmpSGT(at, last), last, at), 0};
    }
    all = b_.CreateInsertElement(all, b_.CreateExtractElement(load(buffer, one, sizes), uint64_t{0}), uint64_t{i});
  }
  return all;
}

void Emitter::store(const Buffer& buffer, const std::vector<Coordinate>& at, Value* value) {
  const auto lanes = llvm::cast<llvm::FixedVectorType>(value->getType())->getNumElements() / side_by_side_;
  if (buffer.step != lanes * size_of(buffer.dtype) && side_by_side_ > 1) {
    for (unsigned step = 0; step < side_by_side_; ++step) {
      std::vector<int> from;
      for (unsigned i = 0; i < lanes; ++i) from.push_back(static_cast<int>(step * lanes + i));
      Value* stored = codegen::emit_to_memory(b_, b_.CreateShuffleVector(value, from), buffer.dtype);
      Value* there = b_.CreateGEP(b_.getInt8Ty(), address(buffer, at), number(step * buffer.step));
      b_.CreateAlignedStore(stored, there, llvm::Align(size_of(buffer.dtype)));
    }
    return;
  }
  Value* stored = codegen::emit_to_memory(b_, value, buffer.dtype);
  b_.CreateAlignedStore(stored, address(buffer, at), llvm::Align(size_of(buffer.dtype)));
}

/// Stores the first lanes only: in halves, so that nothing after them is written and nothing branches.
void Emitter::store_exactly(const Buffer& buffer, const std::vector<Coordinate>& at, Value* value, int64_t lanes) {
  const auto count =
      static_cast<int64_t>(llvm::cast<llvm::FixedVectorType>(value->getType())->getNumElements() / side_by_side_);
  if (lanes >= count) return store(buffer, at, value);
  std::vector<Coordinate> here = at;
  for (int64_t first = 0, size = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count))); size > 0;
       size /= 2) {
    if (first + size > lanes) continue;
    std::vector<int> mask;
    for (int64_t i = 0; i < size; ++i) mask.push_back(static_cast<int>(first + i));
    store(buffer, here, b_.CreateShuffleVector(value, mask));
    first += size;
    here.back().offset += size;
  }
}

unsigned Emitter::lanes_for(DType dtype, int64_t columns) const {
  // f16 and bf16 are f32 in registers and have as many lanes as f32, and so has bool, the result of comparisons of f32.
  const int64_t size = std::max<int64_t>(size_of(dtype), 4);
  const auto most = static_cast<uint64_t>(std::max<int64_t>(target_.vector_bytes / size, 1));
  return static_cast<unsigned>(std::min(most, std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(columns, 1)))));
}

unsigned Emitter::lanes_for(ValueId value) const {
  const std::vector<int64_t> shape = sizes(value);
  return lanes_for(dtype(value), shape.empty() ? 1 : shape.back());
}

/// Memory for so many bytes at each step.
Memory::Slot Emitter::space(int64_t bytes) {
  const int64_t align = std::max<int64_t>(target_.vector_bytes, 8);
  const auto padded = [&](int64_t bytes) { return (bytes + align - 1) / align * align; };
  Memory::Slot slot;
  // Narrow values of neighbouring steps are neighbours, which a vector holds side by side.
  slot.step =
      steps_ > 1 && 2 * bytes <= align && std::has_single_bit(static_cast<uint64_t>(bytes)) ? bytes : padded(bytes);
  slot.bytes = padded(slot.step * steps_);
  slot.offset = memory_.take(slot.bytes);
  return slot;
}

/// Memory for a value of this shape, with rows of `row` elements.
Memory::Slot& Emitter::reserve(ValueId value, const std::vector<int64_t>& shape, int64_t row) {
  std::vector<int64_t> strides(shape.size());
  int64_t count = shape.empty() ? 1 : std::max(row, shape.back());
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = i + 1 == shape.size() ? 1 : count;
    if (i + 1 < shape.size()) count *= shape[i];
  }
  Memory::Slot slot = space(count * size_of(dtype(value)));
  slot.strides = std::move(strides);
  if (const auto argument = step_.argument(value); !argument || *argument >= step_.states()) scratch_.insert(value);
  return memory_.slots[value] = slot;
}

Buffer Emitter::in_state(ValueId value, const Memory::Slot& slot) {
  return {b_.CreateGEP(b_.getInt8Ty(), state_, number(slot.offset)), slot.strides, dtype(value),
          steps_ == 1 ? 0 : slot.step};
}

llvm::GlobalVariable* Emitter::global(llvm::Constant* data, const std::string& name) {
  llvm::GlobalVariable*& known = globals_[data];  // LLVM keeps one constant for equal bytes
  if (known != nullptr) return known;
  auto* variable = new llvm::GlobalVariable(module_, data->getType(), true, llvm::GlobalValue::InternalLinkage, data,
                                            name);  // the module owns it
  variable->setAlignment(llvm::Align(static_cast<uint64_t>(std::max<int64_t>(target_.vector_bytes, 8))));
  variable->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  return known = variable;
}

}  // namespace weft::packages
