#include "packages/choice.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>

#include "base/error.h"
#include "packages/functions.h"

namespace weft::packages {
namespace {

using llvm::Value;

class Choice {
 public:
  Choice(const std::string& name, llvm::Module& module) : name_(name), module_(module), b_(module.getContext()) {}

  void emit(const std::vector<const Target*>& targets) {
    auto* type = llvm::FunctionType::get(b_.getPtrTy(), {}, false);
    function_ = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, name_ + "_model", module_);
    b_.SetInsertPoint(block("entry"));
    ask();
    for (size_t i = 0; i < targets.size(); ++i) {
      auto getter = module_.getOrInsertFunction(name_ + "_model_" + suffix_of(*targets[i]), type);
      if (i + 1 < targets.size()) {
        llvm::BasicBlock *here = block("this"), *next = block("next");
        b_.CreateCondBr(has(*targets[i]), here, next);
        b_.SetInsertPoint(here);
        b_.CreateRet(b_.CreateCall(getter));
        b_.SetInsertPoint(next);
      } else {
        b_.CreateRet(b_.CreateCall(getter));
      }
    }
  }

 private:
  llvm::BasicBlock* block(const char* name) { return llvm::BasicBlock::Create(b_.getContext(), name, function_); }

  /// eax, ebx, ecx and edx of a leaf, or of a part of it.
  Value* cpuid(uint32_t leaf, uint32_t part = 0) {
    llvm::Type* word = b_.getInt32Ty();
    auto* result = llvm::StructType::get(b_.getContext(), {word, word, word, word});
    auto* type = llvm::FunctionType::get(result, {word, word}, false);
    auto* code =
        llvm::InlineAsm::get(type, "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}", true);
    return b_.CreateCall(type, code, {b_.getInt32(leaf), b_.getInt32(part)});
  }

  /// The bits of the registers that the system saves (XCR0). Asks only if `may_be_asked`: elsewhere xgetbv is illegal.
  Value* saved_registers(Value* may_be_asked) {
    llvm::BasicBlock *before = b_.GetInsertBlock(), *asked = block("asked"), *behind = block("behind");
    b_.CreateCondBr(may_be_asked, asked, behind);
    b_.SetInsertPoint(asked);
    llvm::Type* word = b_.getInt32Ty();
    auto* type = llvm::FunctionType::get(llvm::StructType::get(b_.getContext(), {word, word}), {word}, false);
    auto* code = llvm::InlineAsm::get(type, ".byte 0x0f, 0x01, 0xd0",  // xgetbv
                                      "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}", true);
    Value* low = b_.CreateExtractValue(b_.CreateCall(type, code, {b_.getInt32(0)}), 0);
    b_.CreateBr(behind);
    b_.SetInsertPoint(behind);
    auto* result = b_.CreatePHI(word, 2);
    result->addIncoming(b_.getInt32(0), before);
    result->addIncoming(low, asked);
    return result;
  }

  void ask() {
    Value* most = b_.CreateExtractValue(cpuid(0), 0);
    basic_ = b_.CreateExtractValue(cpuid(1), 2);
    // cpuid of a leaf that doesn't exist returns the bits of another leaf.
    Value* has_seven = b_.CreateICmpUGE(most, b_.getInt32(7));
    Value *seven = cpuid(7), *none = b_.getInt32(0);
    extended_ = b_.CreateSelect(has_seven, b_.CreateExtractValue(seven, 1), none);
    wide_bytes_ = b_.CreateSelect(has_seven, b_.CreateExtractValue(seven, 2), none);
    Value* has_part = b_.CreateAnd(has_seven, b_.CreateICmpNE(b_.CreateExtractValue(seven, 0), none));
    bytes_ = b_.CreateSelect(has_part, b_.CreateExtractValue(cpuid(7, 1), 0), none);
    amd_ = b_.CreateExtractValue(cpuid(0x80000001), 2);
    constexpr uint32_t kOsxsave = 1u << 27;
    saved_ = saved_registers(all(basic_, kOsxsave));
  }

  Value* all(Value* word, uint32_t bits) { return b_.CreateICmpEQ(b_.CreateAnd(word, bits), b_.getInt32(bits)); }

  Value* has(const Target& target) {
    constexpr uint32_t kBasic = 1u << 12 | 1u << 22 | 1u << 28 | 1u << 29;            // fma, movbe, avx, f16c
    constexpr uint32_t kExtended = 1u << 3 | 1u << 5 | 1u << 8;                       // bmi1, avx2, bmi2
    constexpr uint32_t kWide = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;  // avx512: f, dq, cd, bw, vl
    constexpr uint32_t kLzcnt = 1u << 5, kYmm = 0x6, kZmm = 0xe6;
    Value* third = b_.CreateAnd(b_.CreateAnd(all(basic_, kBasic), all(extended_, kExtended)),
                                b_.CreateAnd(all(amd_, kLzcnt), all(saved_, kYmm)));
    constexpr uint32_t kAvxVnni = 1u << 4, kAvx512Vnni = 1u << 11;
    if (target.name == "x86-64-v3") return third;
    if (target.name == "x86-64-v3-avxvnni") return b_.CreateAnd(third, all(bytes_, kAvxVnni));
    Value* fourth = b_.CreateAnd(third, b_.CreateAnd(all(extended_, kWide), all(saved_, kZmm)));
    if (target.name == "x86-64-v4") return fourth;
    internal_check(target.name == "x86-64-v4-vnni", "nothing is known of how to find {}", target.name);
    return b_.CreateAnd(fourth, all(wide_bytes_, kAvx512Vnni));
  }

  std::string name_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  Value *basic_ = nullptr, *extended_ = nullptr, *amd_ = nullptr, *saved_ = nullptr;
  Value *bytes_ = nullptr, *wide_bytes_ = nullptr;  // words with the bits of AVX-VNNI and AVX512-VNNI
};

}  // namespace

void emit_choice(const std::string& name, const std::vector<const Target*>& targets, llvm::Module& module) {
  Choice(name, module).emit(targets);
}

}  // namespace weft::packages
