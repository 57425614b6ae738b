#include "device/called_program.h"

#include <mutex>
#include <unordered_map>

#include "base/fork.h"

namespace weft::device {
namespace {

struct Table {
  struct Entry {
    std::weak_ptr<const torch_operator::CallProgram> program;
    int64_t number;
  };
  std::mutex mutex;
  std::unordered_map<const torch_operator::CallProgram*, Entry> known;
  int64_t next_number = 1;
  size_t next_look = 64;  ///< for entries of programs that are gone, at so many entries
  Table() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
Table& table = *new Table();

int64_t number_of(const torch_operator::ProgramRef& program) {
  std::lock_guard lock(table.mutex);
  Table::Entry& entry = table.known[program.get()];
  if (entry.program.expired()) entry = {program, table.next_number++};
  const int64_t number = entry.number;
  if (table.known.size() >= table.next_look) {
    std::erase_if(table.known, [](const auto& each) { return each.second.program.expired(); });
    table.next_look = 2 * table.known.size() + 64;
  }
  return number;
}

}  // namespace

c10::IValue called_program(std::string_view text) {
  torch_operator::ProgramRef program = torch_operator::find_program(text);
  const int64_t number = number_of(program);
  return c10::IValue::make_capsule(c10::make_intrusive<CalledProgram>(std::move(program), number));
}

const CalledProgram& called_program(const c10::IValue& argument) {
  return static_cast<const CalledProgram&>(*argument.toCapsule());
}

}  // namespace weft::device
