#include "packages/math/rare_lanes.h"

#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

namespace weft::packages {
namespace {

using llvm::IRBuilder;
using llvm::Value;

/// Memory of elements, not aligned more than they are: a stack that has to be realigned costs every call.
const llvm::Align kAlign{8};

llvm::BasicBlock* new_block(IRBuilder<>& b, const char* name) {
  return llvm::BasicBlock::Create(b.getContext(), name, b.GetInsertBlock()->getParent());
}

/// void(operands..., results..., count): for each element whose operands are in the case, computes its results.
llvm::Function* lane_loop(IRBuilder<>& outside, const RareCase& rare, const std::vector<llvm::Type*>& types,
                          size_t operands) {
  llvm::Module& module = *outside.GetInsertBlock()->getModule();
  if (llvm::Function* known = module.getFunction(rare.name)) return known;
  IRBuilder<> b(module.getContext());
  std::vector<llvm::Type*> arguments(types.size(), b.getPtrTy());
  arguments.push_back(b.getInt32Ty());
  auto* function = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), arguments, false),
                                          llvm::GlobalValue::InternalLinkage, rare.name, module);
  function->addFnAttr(llvm::Attribute::Cold);
  function->addFnAttr(llvm::Attribute::NoInline);
  auto* entry = llvm::BasicBlock::Create(b.getContext(), "entry", function);
  b.SetInsertPoint(entry);
  llvm::BasicBlock *inside = new_block(b, "lane"), *found = new_block(b, "found"), *next = new_block(b, "next"),
                   *end = new_block(b, "end");
  b.CreateBr(inside);
  b.SetInsertPoint(inside);
  llvm::PHINode* i = b.CreatePHI(b.getInt32Ty(), 2);
  i->addIncoming(b.getInt32(0), entry);
  const auto place = [&](size_t argument) {
    return b.CreateGEP(types[argument], function->getArg(static_cast<unsigned>(argument)), i);
  };
  Values given;
  for (size_t each = 0; each < operands; ++each) given.push_back(b.CreateAlignedLoad(types[each], place(each), kAlign));
  b.CreateCondBr(rare.contains(b, given), found, next);
  b.SetInsertPoint(found);
  const Values results = rare.compute(b, given);
  for (size_t each = 0; each < results.size(); ++each)
    b.CreateAlignedStore(results[each], place(operands + each), kAlign);
  b.CreateBr(next);
  b.SetInsertPoint(next);
  Value* after = b.CreateAdd(i, b.getInt32(1));
  i->addIncoming(after, next);
  b.CreateCondBr(b.CreateICmpULT(after, function->getArg(static_cast<unsigned>(types.size()))), inside, end);
  b.SetInsertPoint(end);
  b.CreateRetVoid();
  return function;
}

}  // namespace

Values with_rare_lanes(IRBuilder<>& b, const RareCase& rare, std::span<Value* const> operands, Values results) {
  llvm::BasicBlock* here = b.GetInsertBlock();
  llvm::BasicBlock& entry = here->getParent()->getEntryBlock();
  llvm::BasicBlock *some = new_block(b, "rare"), *after = new_block(b, "usual");
  b.CreateCondBr(b.CreateOrReduce(rare.contains(b, operands)), some, after,
                 llvm::MDBuilder(b.getContext()).createUnlikelyBranchWeights());
  b.SetInsertPoint(some);
  Values arguments;
  std::vector<llvm::Type*> types;
  const auto pass = [&](Value* vector) {
    IRBuilder<> at_entry(&entry, entry.begin());
    llvm::AllocaInst* slot = at_entry.CreateAlloca(vector->getType());
    slot->setAlignment(kAlign);
    b.CreateLifetimeStart(slot);  // other vectors share the memory
    b.CreateAlignedStore(vector, slot, kAlign);
    arguments.push_back(slot);
    types.push_back(vector->getType()->getScalarType());
  };
  for (Value* operand : operands) pass(operand);
  for (Value* result : results) pass(result);
  const auto* shape = llvm::cast<llvm::FixedVectorType>(operands[0]->getType());
  arguments.push_back(b.getInt32(shape->getNumElements()));
  b.CreateCall(lane_loop(b, rare, types, operands.size()), arguments);
  Values computed;
  for (size_t i = 0; i < results.size(); ++i)
    computed.push_back(b.CreateAlignedLoad(results[i]->getType(), arguments[operands.size() + i], kAlign));
  for (Value* slot : std::span(arguments).first(types.size())) b.CreateLifetimeEnd(slot);
  b.CreateBr(after);
  b.SetInsertPoint(after);
  for (size_t i = 0; i < results.size(); ++i) {
    llvm::PHINode* either = b.CreatePHI(results[i]->getType(), 2);
    either->addIncoming(results[i], here);
    either->addIncoming(computed[i], some);
    results[i] = either;
  }
  return results;
}

}  // namespace weft::packages
