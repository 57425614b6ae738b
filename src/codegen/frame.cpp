#include "codegen/frame.h"

namespace weft::codegen {

using llvm::Value;

Frame::Frame(planning::Schedule& schedule, llvm::Module& module, const std::string& name)
    : schedule(schedule), b(module.getContext()) {
  llvm::Type* pointer = b.getPtrTy();
  std::vector<llvm::Type*> types(3, pointer);
  types.resize(9, b.getInt64Ty());
  auto* type = llvm::FunctionType::get(b.getVoidTy(), types, false);
  function_ = new_function(type, llvm::Function::ExternalLinkage, name, module);
  llvm::Value** arguments[] = {&buffers, &dims, &barrier, &lo, &hi, &unit, &units, &first_step, &last_step};
  for (unsigned i = 0; i < 9; ++i) *arguments[i] = function_->getArg(i);
  entry_ = begin(function_);
}

llvm::Function* Frame::new_function(llvm::FunctionType* type, llvm::GlobalValue::LinkageTypes linkage,
                                    const std::string& name, llvm::Module& module) {
  llvm::Function* function = llvm::Function::Create(type, linkage, name, module);
  // Vectors of 64 bytes stay whole, also on CPUs for which LLVM would rather halve them.
  function->addFnAttr("prefer-vector-width", "512");
  function->addFnAttr("min-legal-vector-width", "512");
  function->addFnAttr(llvm::Attribute::NoUnwind);
  return function;
}

llvm::BasicBlock* Frame::begin(llvm::Function* function) {
  llvm::BasicBlock* entry = llvm::BasicBlock::Create(b.getContext(), "entry", function);
  llvm::BasicBlock* start = llvm::BasicBlock::Create(b.getContext(), "start", function);
  b.SetInsertPoint(entry);
  b.CreateBr(start);
  b.SetInsertPoint(start);
  return entry;
}

llvm::IRBuilder<> Frame::at_entry() { return llvm::IRBuilder<>(entry_->getTerminator()); }

Value* Frame::size(const ir::Dim& dim) {
  if (dim.is_constant()) return i64(dim.constant());
  Value*& cached = sizes_[dim];
  if (cached) return cached;
  auto index = static_cast<int64_t>(schedule.plan.dims.size());
  schedule.plan.dims.push_back(schedule.expression(dim));
  auto e = at_entry();
  return cached = e.CreateLoad(e.getInt64Ty(), e.CreateConstGEP1_64(e.getInt64Ty(), dims, static_cast<uint64_t>(index)),
                               to_string(dim));
}

Value* Frame::buffer(int64_t index) {
  Value*& cached = buffers_[index];
  if (cached) return cached;
  auto e = at_entry();
  return cached = e.CreateLoad(e.getPtrTy(), e.CreateConstGEP1_64(e.getPtrTy(), buffers, static_cast<uint64_t>(index)));
}

Value* Frame::address(ir::ValueId value) {
  if (auto found = memory.find(value); found != memory.end()) return found->second;
  if (auto found = schedule.buffer.find(value); found != schedule.buffer.end()) return buffer(found->second);
  auto definition = schedule.definition.find(value);
  internal_check(definition != schedule.definition.end() && ir::is_alias(definition->second->code),
                 "value %{} has no memory", value);
  return address(definition->second->operands[0]);
}

Value* Frame::offset(Value* pointer, Value* elements, int64_t element_bytes) {
  return b.CreateGEP(b.getInt8Ty(), pointer, b.CreateMul(elements, i64(element_bytes)));
}

Value* Frame::stack(llvm::Type* type, int64_t count) {
  auto e = at_entry();
  auto* slot = e.CreateAlloca(llvm::ArrayType::get(type, static_cast<uint64_t>(count)));
  slot->setAlignment(llvm::Align(64));
  return slot;
}

Value* Frame::stack_field(Value* memory, size_t index) {
  return at_entry().CreateConstGEP1_64(b.getInt64Ty(), memory, index);
}

llvm::Constant* Frame::constants(const std::vector<llvm::Constant*>& values) {
  llvm::Constant* all = llvm::ConstantStruct::getAnon(values);
  auto* global = new llvm::GlobalVariable(*function_->getParent(), all->getType(), true,
                                          llvm::GlobalValue::PrivateLinkage, all);  // the module owns it
  global->setAlignment(llvm::Align(8));
  return global;
}

bool Frame::is_known_at_entry(const Value* value) const {
  const auto* instruction = llvm::dyn_cast<llvm::Instruction>(value);
  return !instruction || instruction->getParent() == entry_;
}

void Frame::keep(Value* value, Value* address) {
  if (is_known_at_entry(value))
    at_entry().CreateStore(value, address);
  else
    b.CreateStore(value, address);
}

Frame::Outlined Frame::outline(const std::string& name, size_t arguments, const OutlinedBody& body) {
  std::vector<llvm::Type*> types(1 + arguments, b.getInt64Ty());
  types[0] = b.getPtrTy();
  llvm::Function* inner =
      new_function(llvm::FunctionType::get(b.getVoidTy(), types, false), llvm::Function::InternalLinkage,
                   function_->getName().str() + "_" + name, *function_->getParent());
  const llvm::IRBuilderBase::InsertPoint here = b.saveIP();
  begin(inner);
  std::vector<Value*> values;
  for (unsigned i = 0; i < arguments; ++i) values.push_back(inner->getArg(i + 1));
  body(values);
  b.CreateRetVoid();
  b.restoreIP(here);
  return {inner, make_closure(*inner)};
}

/// Stores this function's values that `inner` uses in a closure, and makes `inner` load them from there at its start.
Value* Frame::make_closure(llvm::Function& inner) {
  std::map<Value*, size_t> places;
  std::vector<Value*> captured;
  std::vector<llvm::Use*> uses;
  for (llvm::BasicBlock& block : inner)
    for (llvm::Instruction& instruction : block)
      for (llvm::Use& use : instruction.operands()) {
        const auto* other = llvm::dyn_cast<llvm::Instruction>(use);
        const auto* argument = llvm::dyn_cast<llvm::Argument>(use);
        if (!(other && other->getFunction() == function_) && !(argument && argument->getParent() == function_))
          continue;
        if (places.emplace(use, captured.size()).second) captured.push_back(use);
        uses.push_back(&use);
      }
  if (captured.empty()) return llvm::ConstantPointerNull::get(b.getPtrTy());
  std::vector<llvm::Type*> types;
  for (Value* value : captured) types.push_back(value->getType());
  auto* type = llvm::StructType::get(b.getContext(), types);
  Value* closure = stack(type, 1);
  llvm::IRBuilder<> loads(inner.getEntryBlock().getTerminator());
  std::vector<Value*> loaded;
  for (unsigned i = 0; i < captured.size(); ++i) {
    keep(captured[i], at_entry().CreateStructGEP(type, closure, i));
    loaded.push_back(loads.CreateLoad(types[i], loads.CreateStructGEP(type, inner.getArg(0), i)));
  }
  for (llvm::Use* use : uses) use->set(loaded[places.at(use->get())]);
  return closure;
}

llvm::FunctionCallee Frame::runtime_function(const std::string& name, llvm::FunctionType* type) {
  return function_->getParent()->getOrInsertFunction(name, type);
}

Value* Frame::minimum(Value* x, Value* y) { return b.CreateSelect(b.CreateICmpSLT(x, y), x, y); }

std::vector<Value*> Frame::loop(Value* begin, Value* end, int64_t step, std::vector<Value*> carried,
                                const LoopBody& body) {
  llvm::LLVMContext& context = b.getContext();
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();  // this function, or an outlined one
  llvm::BasicBlock* head = llvm::BasicBlock::Create(context, "head", function);
  llvm::BasicBlock* inside = llvm::BasicBlock::Create(context, "body", function);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(context, "after", function);
  b.CreateBr(head);
  b.SetInsertPoint(head);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2);
  i->addIncoming(begin, before);
  std::vector<llvm::PHINode*> phis;
  std::vector<Value*> values;
  for (Value* initial : carried) {
    phis.push_back(b.CreatePHI(initial->getType(), 2));
    phis.back()->addIncoming(initial, before);
    values.push_back(phis.back());
  }
  b.CreateCondBr(b.CreateICmpSLT(i, end), inside, after);
  b.SetInsertPoint(inside);
  std::vector<Value*> next = body(i, values);
  i->addIncoming(b.CreateAdd(i, i64(step), "", true, true), b.GetInsertBlock());
  for (size_t k = 0; k < phis.size(); ++k) phis[k]->addIncoming(next[k], b.GetInsertBlock());
  b.CreateBr(head);
  b.SetInsertPoint(after);
  return values;
}

void Frame::loop(Value* begin, Value* end, int64_t step, const std::function<void(Value*)>& body) {
  loop(begin, end, step, {}, [&](Value* i, const std::vector<Value*>&) {
    body(i);
    return std::vector<Value*>{};
  });
}

void Frame::branch(Value* condition, const std::function<void()>& yes, const std::function<void()>& no) {
  llvm::LLVMContext& context = b.getContext();
  llvm::Function* function = b.GetInsertBlock()->getParent();
  auto* if_true = llvm::BasicBlock::Create(context, "yes", function);
  auto* if_false = llvm::BasicBlock::Create(context, "no", function);
  auto* after = llvm::BasicBlock::Create(context, "joined", function);
  b.CreateCondBr(condition, if_true, if_false);
  b.SetInsertPoint(if_true);
  yes();
  b.CreateBr(after);
  b.SetInsertPoint(if_false);
  no();
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

}  // namespace weft::codegen
