#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "planning/schedule.h"

namespace weft::codegen {

/// One function of machine code while it is emitted: its arguments (runtime::StageFunction), its sizes, and the
/// addresses at which values in memory are read and stored.
class Frame {
 public:
  Frame(planning::Schedule& schedule, llvm::Module& module, const std::string& name);

  planning::Schedule& schedule;
  llvm::IRBuilder<> b;
  llvm::Value *buffers, *dims, *barrier, *lo, *hi, *unit, *units, *first_step, *last_step;
  bool batched = false;
  llvm::Value* backwards = nullptr;            ///< in a scan: whether this step takes panels from the last to the first
  std::map<ir::ValueId, llvm::Value*> memory;  ///< the address at which a value is read
  std::map<ir::ValueId, std::vector<llvm::Value*>> targets;  ///< the addresses to which a value is stored
  /// In a scan: by the address of a step's slice of a stack, the offset in bytes of the next step's slice from it.
  std::map<llvm::Value*, llvm::Value*> next_slice;
  /// In a scan: the addresses of slices that go past the caches if `streams` isn't 0.
  std::set<llvm::Value*> streamed;
  llvm::Value* streams = nullptr;

  const ir::Program& program() const { return *schedule.program; }
  const ir::Type& type(ir::ValueId value) const { return schedule.program->type(value); }

  /// A size as an i64: a constant, or loaded once in the entry block.
  llvm::Value* size(const ir::Dim& dim);
  llvm::Value* i64(int64_t value) { return b.getInt64(static_cast<uint64_t>(value)); }
  /// The start of a plan's buffer, loaded once in the entry block.
  llvm::Value* buffer(int64_t index);
  /// The address at which `value` is read: its entry in `memory`, else its buffer, else the operand's address if it is
  /// a reshape.
  llvm::Value* address(ir::ValueId value);
  /// pointer + elements * bytes.
  llvm::Value* offset(llvm::Value* pointer, llvm::Value* elements, int64_t element_bytes);
  /// Memory on the stack, aligned to a cache line, made in the entry block.
  llvm::Value* stack(llvm::Type* type, int64_t count);
  /// The address of number `index` of values of 8 bytes on the stack, known in the entry block.
  llvm::Value* stack_field(llvm::Value* memory, size_t index);
  /// The address of constants in memory, one after the other, each aligned to 8 bytes.
  llvm::Constant* constants(const std::vector<llvm::Constant*>& values);
  /// Stores a value: once, in the entry block, if it is known there.
  void keep(llvm::Value* value, llvm::Value* address);
  llvm::FunctionCallee runtime_function(const std::string& name, llvm::FunctionType* type);

  /// for (i = begin; i < end; i += step) body(i), with values carried from one iteration to the next (phi nodes).
  using LoopBody = std::function<std::vector<llvm::Value*>(llvm::Value* i, const std::vector<llvm::Value*>& carried)>;
  std::vector<llvm::Value*> loop(llvm::Value* begin, llvm::Value* end, int64_t step, std::vector<llvm::Value*> carried,
                                 const LoopBody& body);
  void loop(llvm::Value* begin, llvm::Value* end, int64_t step, const std::function<void(llvm::Value*)>& body);
  void branch(llvm::Value* condition, const std::function<void()>& yes, const std::function<void()>& no);
  llvm::Value* minimum(llvm::Value* x, llvm::Value* y);

  /// A function of its own. `body` emits its code, given its arguments after the first. The first argument, `closure`,
  /// is the address at which this function stores, here, the values that the outlined code uses.
  struct Outlined {
    llvm::Constant* function;
    llvm::Value* closure;
  };
  using OutlinedBody = std::function<void(const std::vector<llvm::Value*>& arguments)>;
  Outlined outline(const std::string& name, size_t arguments, const OutlinedBody& body);

  /// Ends the function.
  void finish() { b.CreateRetVoid(); }

 private:
  llvm::IRBuilder<> at_entry();
  static llvm::Function* new_function(llvm::FunctionType* type, llvm::GlobalValue::LinkageTypes linkage,
                                      const std::string& name, llvm::Module& module);
  /// Begins the entry block; code goes to another block after it.
  llvm::BasicBlock* begin(llvm::Function* function);
  bool is_known_at_entry(const llvm::Value* value) const;
  llvm::Value* make_closure(llvm::Function& inner);

  llvm::Function* function_;
  llvm::BasicBlock* entry_;
  std::map<ir::Dim, llvm::Value*> sizes_;
  std::map<int64_t, llvm::Value*> buffers_;
};

}  // namespace weft::codegen
