#include "packages/math/shared_functions.h"

#include <llvm/IR/Module.h>

#include <vector>

namespace weft::packages {

using llvm::IRBuilder;
using llvm::Value;

llvm::Function* shared_function(IRBuilder<>& outside, std::string_view name, llvm::Type* result,
                                std::span<llvm::Type* const> arguments, const FunctionBody& body) {
  llvm::Module& module = *outside.GetInsertBlock()->getModule();
  if (llvm::Function* known = module.getFunction(name)) return known;
  const std::vector<llvm::Type*> types(arguments.begin(), arguments.end());
  auto* function = llvm::Function::Create(llvm::FunctionType::get(result, types, false),
                                          llvm::GlobalValue::InternalLinkage, name, module);
  function->addFnAttr(llvm::Attribute::NoInline);
  function->addFnAttr(llvm::Attribute::WillReturn);
  function->setMemoryEffects(llvm::MemoryEffects::none());
  IRBuilder<> b(llvm::BasicBlock::Create(module.getContext(), "entry", function));
  Values given;
  for (llvm::Argument& argument : function->args()) given.push_back(&argument);
  b.CreateRet(body(b, given));
  return function;
}

Value* for_lanes(IRBuilder<>& b, std::span<Value* const> operands, const std::function<Value*(Values)>& compute) {
  const auto* shape = llvm::dyn_cast<llvm::FixedVectorType>(operands[0]->getType());
  if (shape == nullptr) return compute({operands.begin(), operands.end()});
  Value* result = llvm::PoisonValue::get(operands[0]->getType());
  for (uint64_t lane = 0; lane < shape->getNumElements(); ++lane) {
    Values elements;
    for (Value* operand : operands) elements.push_back(b.CreateExtractElement(operand, lane));
    result = b.CreateInsertElement(result, compute(elements), lane);
  }
  return result;
}

Value* call_for_lanes(IRBuilder<>& b, std::string_view name, std::span<Value* const> operands,
                      const FunctionBody& body) {
  const std::vector<llvm::Type*> types(operands.size(), b.getFloatTy());
  llvm::Function* function = shared_function(b, name, b.getFloatTy(), types, body);
  return for_lanes(b, operands, [&](const Values& lane) { return b.CreateCall(function, lane); });
}

Values either(IRBuilder<>& b, Value* condition, const std::function<Values()>& yes, const std::function<Values()>& no) {
  llvm::Function* function = b.GetInsertBlock()->getParent();
  const auto new_block = [&](const char* name) { return llvm::BasicBlock::Create(b.getContext(), name, function); };
  llvm::BasicBlock *first = new_block("yes"), *second = new_block("no"), *after = new_block("after");
  b.CreateCondBr(condition, first, second);
  const auto branch = [&](llvm::BasicBlock* block, const std::function<Values()>& compute) {
    b.SetInsertPoint(block);
    Values results = compute();
    llvm::BasicBlock* last = b.GetInsertBlock();
    b.CreateBr(after);
    return std::pair(std::move(results), last);
  };
  const auto [of_yes, end_of_yes] = branch(first, yes);
  const auto [of_no, end_of_no] = branch(second, no);
  b.SetInsertPoint(after);
  Values results;
  for (size_t i = 0; i < of_yes.size(); ++i) {
    llvm::PHINode* one = b.CreatePHI(of_yes[i]->getType(), 2);
    one->addIncoming(of_yes[i], end_of_yes);
    one->addIncoming(of_no[i], end_of_no);
    results.push_back(one);
  }
  return results;
}

}  // namespace weft::packages
