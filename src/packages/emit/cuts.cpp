// Long steps as several functions, each of which ends with a call of the next one. What LLVM does to a function takes
// more than twice as long for twice the code.
#include <algorithm>
#include <map>

#include "packages/emit/emitter.h"

namespace weft::packages {

using llvm::Value;

namespace {

/// Instructions, before any pass, from which on the next nest begins a function. A call takes about as long as ten.
constexpr unsigned kLong = 4000;

/// Computes in one function again what another one has computed from its arguments, and from memory that no nest
/// writes: where values lie.
class Again {
 public:
  Again(llvm::IRBuilder<>& builder, llvm::Function& from, llvm::Function& to) : b_(builder) {
    for (unsigned i = 0; i < 3; ++i) known_[from.getArg(i)] = to.getArg(i);
  }

  /// Whether that is all that a value is computed from.
  bool can(Value* value) {
    if (value == nullptr || llvm::isa<llvm::Constant>(value) || known_.contains(value)) return true;
    const auto* made = llvm::dyn_cast<llvm::Instruction>(value);
    if (made == nullptr || llvm::isa<llvm::PHINode, llvm::AllocaInst, llvm::CallInst>(made)) return false;
    return std::ranges::all_of(made->operands(), [&](Value* operand) { return can(operand); });
  }

  Value* operator()(Value* value) {
    if (value == nullptr || llvm::isa<llvm::Constant>(value)) return value;
    if (const auto found = known_.find(value); found != known_.end()) return found->second;
    const auto* made = llvm::cast<llvm::Instruction>(value);
    std::vector<Value*> operands;
    for (Value* operand : made->operands()) operands.push_back((*this)(operand));
    llvm::Instruction* copy = made->clone();
    for (unsigned i = 0; i < operands.size(); ++i) copy->setOperand(i, operands[i]);
    return known_[value] = b_.Insert(copy);
  }

 private:
  llvm::IRBuilder<>& b_;
  std::map<Value*, Value*> known_;
};

}  // namespace

/// Between two nests: goes on in a function of its own if the one being emitted is long. `name`: of the first one.
void Emitter::cut_if_long(const std::string& name) {
  if (!changes_.empty() || function_->getInstructionCount() < kLong) return;
  std::vector<Value**> kept;  // what later nests read of this function
  for (auto& [value, buffer] : buffers_) kept.push_back(&buffer.base);
  for (auto& [kind, turn] : turns_) kept.insert(kept.end(), {&turn.before, &turn.after, &turn.fresh});
  for (auto& [left, rounded] : rounded_)
    kept.insert(kept.end(), {&rounded.words.base, &rounded.elements.base, &rounded.scales.base});
  if (steps_ == 1) kept.push_back(&backwards_);
  std::vector<llvm::Type*> types(3, b_.getPtrTy());
  types.push_back(b_.getInt32Ty());
  auto* type = llvm::FunctionType::get(b_.getInt32Ty(), types, false);
  auto* next = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name + "_on", module_);
  Again again(b_, *function_, *next);
  if (!std::ranges::all_of(kept, [&](Value** value) { return again.can(*value); })) return next->eraseFromParent();
  next->addFnAttr(llvm::Attribute::NoUnwind);
  next->addFnAttr(llvm::Attribute::NoInline);
  llvm::CallInst* call = b_.CreateCall(
      next, {function_->getArg(0), function_->getArg(1), function_->getArg(2), b_.CreateLoad(b_.getInt32Ty(), bad_)});
  call->setTailCall();
  b_.CreateRet(call);
  function_ = next;
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", next));
  state_ = next->getArg(0);
  bad_ = variable(next->getArg(3));
  known_.clear();
  computed_.clear();
  for (Value** value : kept) *value = again(*value);
}

}  // namespace weft::packages
