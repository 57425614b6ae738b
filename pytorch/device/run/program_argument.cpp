#include "device/run/program_argument.h"

#include <mutex>
#include <unordered_map>

#include "base/fork.h"

namespace weft::device {
namespace {

struct ProgramNumbers {
  struct Entry {
    std::weak_ptr<const torch_operator::CallProgram> program;
    int64_t number;
  };
  std::mutex mutex;
  std::unordered_map<const torch_operator::CallProgram*, Entry> known;
  int64_t next_number = 1;
  size_t next_look = 64;  ///< the number of entries at which entries of destroyed programs are looked for
  ProgramNumbers() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
ProgramNumbers& numbers = *new ProgramNumbers();

int64_t number_of(const torch_operator::ProgramRef& program) {
  std::lock_guard lock(numbers.mutex);
  ProgramNumbers::Entry& entry = numbers.known[program.get()];
  if (entry.program.expired()) entry = {program, numbers.next_number++};
  const int64_t number = entry.number;
  if (numbers.known.size() >= numbers.next_look) {
    std::erase_if(numbers.known, [](const auto& each) { return each.second.program.expired(); });
    numbers.next_look = 2 * numbers.known.size() + 64;
  }
  return number;
}

}  // namespace

c10::IValue program_argument(std::string_view text) {
  torch_operator::ProgramRef program = torch_operator::find_program(text);
  const int64_t number = number_of(program);
  return c10::IValue::make_capsule(c10::make_intrusive<ProgramArgument>(std::move(program), number));
}

const ProgramArgument& program_argument(const c10::IValue& argument) {
  return static_cast<const ProgramArgument&>(*argument.toCapsule());
}

}  // namespace weft::device
