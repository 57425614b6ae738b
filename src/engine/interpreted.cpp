#include "engine/interpreted.h"

#include <cstring>

#include "interpreter/interpreter.h"
#include "ir/verifier.h"

namespace weft::engine {
namespace {

class Interpreted : public Executable {
 public:
  explicit Interpreted(ir::Program program) : program_(std::move(program)) {}

  const ir::Program& program() const override { return program_; }

  void run(std::span<const runtime::TensorRef> inputs, std::span<const runtime::TensorRef> outputs,
           runtime::Team& team) const override {
    std::vector<interpreter::Array> arguments;
    for (const runtime::TensorRef& input : inputs) {
      arguments.push_back(interpreter::Array::copy_of({input.dtype, input.sizes, input.data}));
    }
    auto results = interpreter::evaluate(program_, arguments);
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].bytes.empty()) std::memcpy(outputs[i].data, results[i].bytes.data(), results[i].bytes.size());
    }
  }

  std::string plan(const ir::Bindings& bindings) const override { return "interpreted: no buffers are planned\n"; }

 private:
  ir::Program program_;
};

}  // namespace

std::shared_ptr<const Executable> interpreted(ir::Program program) {
  return std::make_shared<const Interpreted>(std::move(program));
}

}  // namespace weft::engine
