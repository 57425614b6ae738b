#include "streaming/lengths.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace weft::streaming {
namespace {

/// The fraction in lowest terms.
Rate reduced(int64_t elements, int64_t steps) {
  const int64_t common = std::max<int64_t>(std::gcd(elements, steps), 1);
  return {elements / common, steps / common};
}

Rate sum(const Rate& a, const Rate& b) {
  return reduced(a.elements * b.steps + b.elements * a.steps, a.steps * b.steps);
}

}  // namespace

bool Lengths::mentions(const ir::Type& type) const {
  return std::ranges::any_of(type.shape, [&](const ir::Dim& dim) { return mentions(dim); });
}

int64_t Lengths::count(const ir::Type& type) const {
  return std::ranges::count_if(type.shape, [&](const ir::Dim& dim) { return mentions(dim); });
}

std::optional<Rate> Lengths::rate(const ir::Dim& dim) const {
  Rate total;
  for (const ir::Dim::Term& term : dim.terms()) {
    Rate grows;
    for (const ir::Dim::Atom& atom : term.atoms) {
      if (grows != Rate{} || term.atoms.size() > 1) return std::nullopt;
      if (!atom.dividend) {
        if (atom.symbol != symbol_) return std::nullopt;
        grows = {1, 1};
      } else {
        const std::optional<Rate> dividend = rate(*atom.dividend);
        if (!dividend) return std::nullopt;
        grows = reduced(dividend->elements, dividend->steps * atom.divisor);
      }
    }
    total = sum(total, reduced(grows.elements * term.factor, grows.steps));
  }
  return total;
}

std::optional<int64_t> Lengths::multiple(const ir::Dim& dim, const ir::Dim& length) const {
  const std::optional<Rate> whole = rate(dim), part = rate(length);
  if (!whole || !part || part->elements <= 0 || whole->elements <= 0) return std::nullopt;
  const Rate times = reduced(whole->elements * part->steps, whole->steps * part->elements);
  if (times.steps != 1 || !(ir::Dim(times.elements) * length == dim)) return std::nullopt;
  return times.elements;
}

ir::Type Lengths::sized(const ir::Type& type, const ir::Dim& length, int64_t elements) const {
  ir::Type result = type;
  for (ir::Dim& dim : result.shape) {
    if (!mentions(dim)) continue;
    const std::optional<int64_t> times = multiple(dim, length);
    check(times.has_value(), "the size {} is no multiple of {}, the steps beside it", to_string(dim),
          to_string(length));
    dim = *times * elements;
  }
  return result;
}

int64_t Lengths::at(const ir::Dim& dim, int64_t steps) const {
  return ir::evaluate(dim, symbol_.empty() ? ir::Bindings{} : ir::Bindings{{symbol_, steps}});
}

int64_t steps_of_chunk(const ir::Program& program, const Lengths& lengths) {
  int64_t steps = 1;
  for (const ir::Value& value : program.values)
    for (const ir::Dim& dim : value.type.shape) {
      if (!lengths.mentions(dim)) continue;
      const std::optional<Rate> rate = lengths.rate(dim);
      if (rate) steps = std::lcm(steps, rate->steps);
    }
  check(steps <= 4096,
        "{} steps would have to be taken at once, since sizes are fractions of their number; at most "
        "4096 may",
        steps);
  return steps;
}

}  // namespace weft::streaming
