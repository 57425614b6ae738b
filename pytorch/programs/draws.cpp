#include "programs/draws.h"

#include <map>

namespace weft::programs {

namespace {

/// The method for an operation, and which of the operation's arguments it takes, by number.
struct Kind {
  const char* method;
  std::vector<size_t> arguments;
  bool from_zero = false;  ///< for random integers without a lower bound, which is 0
};

/// Made at load (base/fork.h).
const auto& kinds = *new const std::map<std::string_view, Kind>{
    {"aten.bernoulli.p", {"bernoulli_", {1}}},
    {"aten.rand.default", {"uniform_", {}}},
    {"aten.rand_like.default", {"uniform_", {}}},
    {"aten.uniform.default", {"uniform_", {1, 2}}},
    {"aten.randn.default", {"normal_", {}}},
    {"aten.randn_like.default", {"normal_", {}}},
    {"aten.normal_functional.default", {"normal_", {1, 2}}},
    {"aten.exponential.default", {"exponential_", {1}}},
    {"aten.log_normal.default", {"log_normal_", {1, 2}}},
    {"aten.cauchy.default", {"cauchy_", {1, 2}}},
    {"aten.geometric.default", {"geometric_", {1}}},
    {"aten.randint.default", {"random_", {0}, true}},
    {"aten.randint.low", {"random_", {0, 1}}},
    {"aten.randint_like.default", {"random_", {1}, true}},
    {"aten.randint_like.low_dtype", {"random_", {1, 2}}},
    {"aten.random.from", {"random_", {1, 2}}},
    {"aten.random.to", {"random_", {1}, true}},
};

}  // namespace

bool is_draw(std::string_view op) { return kinds.contains(op); }

Draw make_draw(std::string_view op, at::ArrayRef<c10::IValue> arguments) {
  const Kind& kind = kinds.at(op);
  Draw draw{kind.method, {}};
  if (kind.from_zero) draw.arguments.emplace_back(int64_t{0});
  for (size_t i : kind.arguments) draw.arguments.push_back(arguments[i]);
  return draw;
}

}  // namespace weft::programs
