#include "device/graph/forms.h"

#include <atomic>
#include <cstring>

#include "device/graph/history_table.h"
#include "device/run/program_argument.h"
#include "record/argument_words.h"

namespace weft::device {
namespace {

using c10::IValue;
using Slot = Operator::Slot;

/// Spells what a form's number stands for: the operation and its arguments but for floating-point numbers, which it
/// collects, and the types of operands and results. The words tell no less than those of a batch's record.
class FormWords {
 public:
  explicit FormWords(std::vector<int64_t>& words) : words_(words) {}

  c10::SmallVector<double, 2> numbers;
  const std::vector<int64_t>& words() const { return words_; }

  void fixed(int64_t word) { words_.push_back(word); }
  void size(int64_t size) { words_.push_back(size); }
  void wrapped_size(int64_t number) { words_.push_back(number); }
  void number(double number) { numbers.push_back(number); }
  void sizes(at::IntArrayRef sizes) {
    words_.push_back(static_cast<int64_t>(sizes.size()));
    words_.insert(words_.end(), sizes.begin(), sizes.end());
  }
  void text(std::string_view text) {
    words_.push_back(static_cast<int64_t>(text.size()));
    record::spell_text(text, [&](int64_t word) { words_.push_back(word); });
  }
  static void tensor(const at::Tensor& /*tensor*/) { throw record::UnsupportedError("a tensor in a form"); }
  static void other(const IValue& argument) {
    throw record::UnsupportedError("an argument of type " + argument.tagKind());
  }

 private:
  std::vector<int64_t>& words_;
};

void spell_argument(const IValue& argument, Slot slot, FormWords& words) {
  if (slot == Slot::kProgram) {
    words.fixed(program_argument(argument).number);
  } else if (slot == Slot::kTensor && argument.isTensor()) {
    record::spell_number(argument.toTensor(), words);
  } else {
    record::spell(argument, words);  // operands' numbers too
  }
}

void spell_call(const Form& form, const Operands& operands, FormWords& words) {
  words.fixed(static_cast<int64_t>(reinterpret_cast<uintptr_t>(form.op)));
  for (size_t i = 0; i < form.arguments.size(); ++i) spell_argument(form.arguments[i], form.op->slots[i], words);
  for (const ValueRef& operand : operands) {
    words.fixed(static_cast<int64_t>(operand->dtype));
    words.sizes({operand->sizes.data(), operand->sizes.size()});
  }
  for (const record::ResultShape& result : *form.results) {
    words.fixed(result.is_defined ? static_cast<int64_t>(result.dtype) : -1);
    words.sizes({result.sizes.data(), result.sizes.size()});
    words.sizes({result.strides.data(), result.strides.size()});  // strides: those of the tensors made of the results
  }
}

bool has_program(const Operator& op) {
  for (const Slot slot : op.slots)
    if (slot == Slot::kProgram) return true;
  return false;
}

bool are_same(at::ArrayRef<double> one, at::ArrayRef<double> other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size() * sizeof(double)) == 0;
}

std::atomic<int64_t> last_number{0};

struct KnownForm {
  int64_t number;
  FormRef form;  ///< the last one; null where it would keep a program alive
};

constexpr size_t kMostForms = 1U << 12U;

}  // namespace

FormRef form_of(const Operator& op, std::vector<IValue> arguments, const Operands& operands, Results results) {
  thread_local HistoryTable<KnownForm> known_forms(kMostForms);
  auto form = c10::make_intrusive<Form>();
  form->op = &op;
  form->arguments = std::move(arguments);
  form->results = std::move(results);
  FormWords words(known_forms.start());
  try {
    spell_call(*form, operands, words);
  } catch (const record::UnsupportedError&) {
    return form;
  }
  form->numbers = std::move(words.numbers);
  KnownForm* found = known_forms.find();
  if (found != nullptr && found->form && are_same(found->form->numbers, form->numbers)) return found->form;
  form->number = found != nullptr ? found->number : ++last_number;
  FormRef kept = has_program(op) ? FormRef() : form;
  if (found != nullptr)
    found->form = std::move(kept);
  else
    known_forms.add(words.words(), {form->number, std::move(kept)});
  return form;
}

}  // namespace weft::device
