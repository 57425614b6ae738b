// The functions around a step, which the descriptor names. They check their arguments and return a status.
#include "packages/functions.h"

#include <llvm/IR/IRBuilder.h>

#include <algorithm>
#include <functional>

#include "ir/text/printer.h"

namespace weft::packages {
namespace {

using interpreter::Array;
using llvm::Value;

// As in weft_model.h.
constexpr int kOk = 0, kNoMemory = 1, kOtherState = 2;
constexpr uint32_t kAbi = 1;
constexpr int64_t kSavedHeader = 8;

uint64_t hash(uint64_t before, const void* bytes, size_t count) {
  const auto* each = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < count; ++i) before = (before ^ each[i]) * 0x100000001b3;  // FNV-1a
  return before;
}

int64_t bytes_of(const Array& array) { return array.count() * size_of(array.dtype); }

int64_t bytes_of(const ir::Type& type) { return ir::element_count(type.shape).constant() * size_of(type.dtype); }

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

class Functions {
 public:
  Functions(const StepModel& model, const Bound& step, const Target& target, const StepFunctions& steps,
            const Memory& memory, llvm::Module& module)
      : model_(model),
        step_(step),
        target_(target),
        steps_(steps),
        memory_(memory),
        module_(module),
        b_(module.getContext()),
        index_(module.getDataLayout().getIntPtrType(module.getContext())) {
    facts_.fingerprint = fingerprint_of(model);
    facts_.state_align = std::max<int64_t>(target.vector_bytes, 8);
    const int64_t room = target.registers * target.vector_bytes;  // for the widest block to read past an end
    facts_.state_bytes = (memory.bytes + room + facts_.state_align - 1) / facts_.state_align * facts_.state_align;
    facts_.saved_bytes = kSavedHeader;
    for (const Array& state : model.states) facts_.saved_bytes += padded(bytes_of(state));
    // A state's layout in memory differs from target to target.
    mark_ = hash(facts_.fingerprint, target.name.data(), target.name.size());
  }

  Facts emit() {
    auto* clear = emit_clear();
    auto* descriptor = emit_descriptor(emit_reset(clear), emit_step(), emit_run(), emit_save(), emit_restore(clear));
    emit_getter(model_.name + "_model_" + suffix_of(target_), descriptor, llvm::GlobalValue::ExternalLinkage);
    emit_getter(model_.name + "_model", descriptor, llvm::GlobalValue::WeakAnyLinkage);
    return facts_;
  }

 private:
  llvm::Function* begin(const std::string& name, llvm::Type* result, std::vector<llvm::Type*> arguments) {
    auto* type = llvm::FunctionType::get(result, arguments, false);
    auto* function =
        llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, model_.name + "_" + name, module_);
    function->addFnAttr(llvm::Attribute::NoUnwind);
    b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", function));
    return function;
  }
  Value* number(int64_t value) { return llvm::ConstantInt::get(index_, static_cast<uint64_t>(value)); }
  Value* at(Value* base, int64_t bytes) { return b_.CreateGEP(b_.getInt8Ty(), base, number(bytes)); }
  llvm::Function* here() { return b_.GetInsertBlock()->getParent(); }
  llvm::BasicBlock* block(const char* name) { return llvm::BasicBlock::Create(b_.getContext(), name, here()); }

  void loop(Value* count, int64_t step, const std::function<void(Value*)>& body) {
    llvm::BasicBlock *before = b_.GetInsertBlock(), *inside = block("loop"), *behind = block("behind");
    b_.CreateCondBr(b_.CreateICmpEQ(count, number(0)), behind, inside);
    b_.SetInsertPoint(inside);
    auto* i = b_.CreatePHI(index_, 2);
    i->addIncoming(number(0), before);
    body(i);
    Value* next = b_.CreateAdd(i, number(step));
    i->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpULT(next, count), inside, behind);
    b_.SetInsertPoint(behind);
  }

  /// Ends the function with a status where `wrong`.
  void refuse(Value* wrong, int status) {
    llvm::BasicBlock *refused = block("refused"), *fine = block("fine");
    b_.CreateCondBr(wrong, refused, fine);
    b_.SetInsertPoint(refused);
    b_.CreateRet(b_.getInt32(static_cast<uint32_t>(status)));
    b_.SetInsertPoint(fine);
  }
  void check_state(Value* state) {
    refuse(b_.CreateIsNull(state), kNoMemory);
    refuse(b_.CreateICmpNE(b_.CreateAlignedLoad(b_.getInt64Ty(), state, llvm::Align(8)), b_.getInt64(mark_)),
           kOtherState);
  }

  /// Copies a state between its place in memory, where rows are padded, and dense memory of its shape.
  void copy_state(size_t number_of_state, Value* dense, Value* state, bool to_state) {
    const Memory::Slot& slot = memory_.slots.at(step_.program().body.args[number_of_state]);
    const Array& array = model_.states[number_of_state];
    Value* in_state = number(slot.offset);
    if (!slot.ring) return copy_dims(array, slot, 0, {dense, number(0)}, {state, in_state}, to_state);
    const int64_t row = slot.strides[slot.ring->dim] * size_of(array.dtype);
    if (to_state) {  // memory is clear: the window begins at row 0
      copy_dims(array, slot, 0, {dense, number(0)}, {state, in_state}, true);
      in_state = b_.CreateAdd(in_state, number(slot.ring->rows * row));
    } else {
      Value* first = b_.CreateAlignedLoad(b_.getInt32Ty(), at(state, slot.ring->first), llvm::Align(4));
      in_state = b_.CreateAdd(in_state, b_.CreateMul(b_.CreateZExtOrTrunc(first, index_), number(row)));
    }
    copy_dims(array, slot, 0, {dense, number(0)}, {state, in_state}, to_state);
  }

  /// Memory, and an offset in it.
  struct Side {
    Value *base, *offset;
  };
  /// The elements of dims from `dim` on, byte by byte.
  void copy_dims(const Array& array, const Memory::Slot& slot, size_t dim, Side dense, Side state, bool to_state) {
    const int64_t size = size_of(array.dtype);
    const auto inner = [&](Value* i, int64_t dense_stride, int64_t stride) {
      return std::pair(Side{dense.base, b_.CreateAdd(dense.offset, b_.CreateMul(i, number(dense_stride)))},
                       Side{state.base, b_.CreateAdd(state.offset, b_.CreateMul(i, number(stride)))});
    };
    if (dim + 1 < array.sizes.size()) {
      int64_t count = size;
      for (size_t i = dim + 1; i < array.sizes.size(); ++i) count *= array.sizes[i];
      loop(number(array.sizes[dim]), 1, [&](Value* i) {
        const auto [d, s] = inner(i, count, slot.strides[dim] * size);
        copy_dims(array, slot, dim + 1, d, s, to_state);
      });
      return;
    }
    loop(number((array.sizes.empty() ? 1 : array.sizes.back()) * size), 1, [&](Value* i) {
      const auto [d, s] = inner(i, 1, 1);
      Value* in_dense = b_.CreateGEP(b_.getInt8Ty(), d.base, d.offset);
      Value* in_state = b_.CreateGEP(b_.getInt8Ty(), s.base, s.offset);
      Value *from = to_state ? in_dense : in_state, *to = to_state ? in_state : in_dense;
      b_.CreateStore(b_.CreateLoad(b_.getInt8Ty(), from), to);
    });
  }

  /// Zeros, and the model's number.
  llvm::Function* emit_clear() {
    auto* function = begin("clear", b_.getVoidTy(), {b_.getPtrTy()});
    Value* state = function->getArg(0);
    loop(number(facts_.state_bytes), 8, [&](Value* i) {
      b_.CreateAlignedStore(b_.getInt64(0), b_.CreateGEP(b_.getInt8Ty(), state, i), llvm::Align(8));
    });
    b_.CreateAlignedStore(b_.getInt64(mark_), state, llvm::Align(8));
    b_.CreateRetVoid();
    return function;
  }

  llvm::Function* emit_reset(llvm::Function* clear) {
    auto* function = begin("reset", b_.getInt32Ty(), {b_.getPtrTy()});
    Value* state = function->getArg(0);
    refuse(b_.CreateIsNull(state), kNoMemory);
    b_.CreateCall(clear, {state});
    for (size_t i = 0; i < model_.states.size(); ++i) {
      const Array& array = model_.states[i];
      if (std::ranges::all_of(array.bytes, [](std::byte byte) { return byte == std::byte{0}; })) continue;
      const llvm::StringRef data(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
      copy_state(i, constant(llvm::ConstantDataArray::getString(b_.getContext(), data, false)), state, true);
    }
    b_.CreateRet(b_.getInt32(kOk));
    return function;
  }

  llvm::Function* emit_step() {
    auto* function = begin("step", b_.getInt32Ty(), {b_.getPtrTy(), b_.getPtrTy(), b_.getPtrTy()});
    check_state(function->getArg(0));
    b_.CreateRet(b_.CreateCall(steps_.one, {function->getArg(0), function->getArg(1), function->getArg(2)}));
    return function;
  }

  /// Runs steps over stacks: in the stack of an input, a step's tensor lies right behind the tensor of the step before.
  /// Outputs likewise.
  llvm::Function* emit_run() {
    auto* function = begin("run", b_.getInt32Ty(), {b_.getPtrTy(), b_.getPtrTy(), b_.getPtrTy(), index_});
    std::vector<int64_t> strides[2];
    for (const ir::Type& input : model_.inputs) strides[0].push_back(bytes_of(input));
    const auto& results = step_.program().body.results;
    for (size_t i = step_.states(); i < results.size(); ++i)
      strides[1].push_back(bytes_of(step_.program().type(results[i])));
    Value* pointers[2];
    for (int side = 0; side < 2; ++side)
      pointers[side] = b_.CreateAlloca(llvm::ArrayType::get(b_.getPtrTy(), std::max<size_t>(strides[side].size(), 1)));
    check_state(function->getArg(0));  // after the variables, which belong to the first block
    const auto call = [&](llvm::Function* steps, Value* t) {
      for (int side = 0; side < 2; ++side)
        for (size_t i = 0; i < strides[side].size(); ++i) {
          Value* given = b_.CreateConstGEP1_64(b_.getPtrTy(), function->getArg(static_cast<unsigned>(1 + side)), i);
          Value* now = b_.CreateGEP(b_.getInt8Ty(), b_.CreateLoad(b_.getPtrTy(), given),
                                    b_.CreateMul(t, number(strides[side][i])));
          b_.CreateStore(now, b_.CreateConstGEP1_64(b_.getPtrTy(), pointers[side], i));
        }
      return b_.CreateCall(steps, {function->getArg(0), pointers[0], pointers[1]});
    };
    Value* count = function->getArg(3);
    Value* done = number(0);
    if (steps_.several != nullptr) {  // which never fails
      done = b_.CreateSub(count, b_.CreateURem(count, number(steps_.at_once)));
      loop(done, steps_.at_once, [&](Value* t) { call(steps_.several, t); });
    }
    loop(b_.CreateSub(count, done), 1, [&](Value* t) {
      Value* status = call(steps_.one, b_.CreateAdd(done, t));
      llvm::BasicBlock *failed = block("failed"), *fine = block("fine");
      b_.CreateCondBr(b_.CreateICmpEQ(status, b_.getInt32(kOk)), fine, failed);
      b_.SetInsertPoint(failed);
      b_.CreateRet(status);
      b_.SetInsertPoint(fine);
    });
    b_.CreateRet(b_.getInt32(kOk));
    return function;
  }

  llvm::Function* emit_save() {
    auto* function = begin("save", b_.getInt32Ty(), {b_.getPtrTy(), b_.getPtrTy()});
    Value *state = function->getArg(0), *saved = function->getArg(1);
    check_state(state);
    refuse(b_.CreateIsNull(saved), kNoMemory);
    b_.CreateAlignedStore(b_.getInt64(facts_.fingerprint), saved, llvm::Align(1));
    int64_t offset = kSavedHeader;
    for (size_t i = 0; i < model_.states.size(); ++i) {
      copy_state(i, at(saved, offset), state, false);
      offset += padded(bytes_of(model_.states[i]));
    }
    b_.CreateRet(b_.getInt32(kOk));
    return function;
  }

  llvm::Function* emit_restore(llvm::Function* clear) {
    auto* function = begin("restore", b_.getInt32Ty(), {b_.getPtrTy(), b_.getPtrTy(), index_});
    Value *state = function->getArg(0), *saved = function->getArg(1);
    refuse(b_.CreateOr(b_.CreateIsNull(state), b_.CreateIsNull(saved)), kNoMemory);
    refuse(b_.CreateICmpNE(function->getArg(2), number(facts_.saved_bytes)), kOtherState);
    refuse(
        b_.CreateICmpNE(b_.CreateAlignedLoad(b_.getInt64Ty(), saved, llvm::Align(1)), b_.getInt64(facts_.fingerprint)),
        kOtherState);
    b_.CreateCall(clear, {state});
    int64_t offset = kSavedHeader;
    for (size_t i = 0; i < model_.states.size(); ++i) {
      copy_state(i, at(saved, offset), state, true);
      offset += padded(bytes_of(model_.states[i]));
    }
    b_.CreateRet(b_.getInt32(kOk));
    return function;
  }

  llvm::GlobalVariable* constant(llvm::Constant* data) {
    return new llvm::GlobalVariable(module_, data->getType(), true, llvm::GlobalValue::InternalLinkage, data,
                                    model_.name + "_data");  // the module owns it
  }
  llvm::Constant* text(std::string_view words) {
    return constant(llvm::ConstantDataArray::getString(b_.getContext(), words, true));
  }
  llvm::Constant* u32(uint64_t value) { return llvm::ConstantInt::get(b_.getInt32Ty(), value); }
  llvm::Constant* size(int64_t value) { return llvm::ConstantInt::get(index_, static_cast<uint64_t>(value)); }

  /// An array of weft_tensor, one for each name and type.
  llvm::Constant* tensors(const std::vector<std::string>& names, const std::vector<ir::Type>& types) {
    llvm::Type* pointer = b_.getPtrTy();
    auto* type = llvm::StructType::get(b_.getContext(), {pointer, b_.getInt32Ty(), b_.getInt32Ty(), pointer, index_});
    std::vector<llvm::Constant*> all;
    for (size_t i = 0; i < names.size(); ++i) {
      std::vector<uint64_t> dims{};
      for (const ir::Dim& dim : types[i].shape) dims.push_back(static_cast<uint64_t>(dim.constant()));
      if (dims.empty()) dims.push_back(1);  // rank 0: nobody reads it
      all.push_back(llvm::ConstantStruct::get(
          type, {text(names[i]), u32(static_cast<uint64_t>(types[i].dtype)), u32(types[i].shape.size()),
                 constant(llvm::ConstantDataArray::get(b_.getContext(), dims)), size(bytes_of(types[i]))}));
    }
    return constant(llvm::ConstantArray::get(llvm::ArrayType::get(type, all.size()), all));
  }

  llvm::GlobalVariable* emit_descriptor(llvm::Function* reset, llvm::Function* step, llvm::Function* run,
                                        llvm::Function* save, llvm::Function* restore) {
    std::vector<ir::Type> states, outputs;
    const ir::Program& program = step_.program();
    for (size_t i = 0; i < program.body.results.size(); ++i)
      (i < step_.states() ? states : outputs).push_back(program.type(program.body.results[i]));
    llvm::Constant* fields[] = {u32(kAbi),
                                u32(model_.inputs.size()),
                                u32(outputs.size()),
                                u32(states.size()),
                                text(model_.name),
                                text(target_.name),
                                llvm::ConstantInt::get(b_.getInt64Ty(), facts_.fingerprint),
                                tensors(model_.input_names, model_.inputs),
                                tensors(model_.output_names, outputs),
                                tensors(model_.state_names, states),
                                size(facts_.state_bytes),
                                size(facts_.state_align),
                                size(facts_.saved_bytes),
                                reset,
                                step,
                                run,
                                save,
                                restore};
    return constant(llvm::ConstantStruct::getAnon(fields));
  }

  void emit_getter(const std::string& name, llvm::Constant* descriptor, llvm::GlobalValue::LinkageTypes linkage) {
    auto* type = llvm::FunctionType::get(b_.getPtrTy(), {}, false);
    auto* function = llvm::Function::Create(type, linkage, name, module_);
    b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", function));
    b_.CreateRet(descriptor);
  }

  const StepModel& model_;
  const Bound& step_;
  const Target& target_;
  StepFunctions steps_;
  const Memory& memory_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  llvm::Type* index_;
  Facts facts_;
  uint64_t mark_ = 0;
};

}  // namespace

Facts emit_model(const StepModel& model, const Bound& step, const Target& target, const StepFunctions& steps,
                 const Memory& memory, llvm::Module& module) {
  return Functions(model, step, target, steps, memory, module).emit();
}

uint64_t fingerprint_of(const StepModel& model) {
  const std::string text = ir::print(model.program);
  uint64_t number = hash(0xcbf29ce484222325, text.data(), text.size());
  for (const Array& state : model.states) number = hash(number, state.bytes.data(), state.bytes.size());
  for (const Array& weight : model.weights) number = hash(number, weight.bytes.data(), weight.bytes.size());
  const std::string_view stored = name_of(model.stored);
  if (model.stored != DType::kF32) number = hash(number, stored.data(), stored.size());
  if (model.activations != DType::kF32) number = hash(number, "activations", 11);
  return number;
}

std::string suffix_of(const Target& target) {
  std::string name(target.name);
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace weft::packages
