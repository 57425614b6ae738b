// Elements of the parameters in another order, or missing.

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "verify/diagnosis/changes.h"

namespace weft::verify {
namespace {

// The parameters that a rearrangement moves.
struct Part {
  std::string_view name;
  bool weight_x, weight_h, bias_x, bias_h;
  bool rare;
};

constexpr Part kParts[] = {
    {"", true, true, true, true, false},
    {"recurrent weight and bias", false, true, false, true, false},
    {"input weight and bias", true, false, true, false, false},
    {"recurrent weight", false, true, false, false, true},
    {"input weight", true, false, false, false, true},
    {"weights, not the biases", true, true, false, false, true},
    {"biases", false, false, true, true, true},
    {"input bias", false, false, true, false, true},
    {"recurrent bias", false, false, false, true, true},
};

void permute_blocks(Matrix& matrix, const std::vector<int>& order) {
  Move move{Move::Kind::kBlocks, static_cast<int64_t>(order.size())};
  std::copy(order.begin(), order.end(), move.order.begin());
  matrix.moves.push_back(move);
}

void permute_blocks(std::vector<double>& values, const std::vector<int>& order) {
  const auto block = static_cast<int64_t>(values.size() / order.size());
  const std::vector<double> old = values;
  for (size_t to = 0; to < order.size(); ++to)
    std::copy_n(old.begin() + order[to] * block, block, values.begin() + static_cast<int64_t>(to) * block);
}

void permute_gates(Direction& direction, const std::vector<int>& order, const Part& part) {
  if (part.weight_x) permute_blocks(direction.weight_x, order);
  if (part.weight_h) permute_blocks(direction.weight_h, order);
  if (part.bias_x) permute_blocks(direction.bias_x, order);
  if (part.bias_h) permute_blocks(direction.bias_h, order);
}

bool has_part(const Direction& direction, const Part& part) {
  const bool x = !direction.bias_x.empty(), h = !direction.bias_h.empty();
  if (part.name.empty()) return true;
  if (part.name == "recurrent weight and bias") return h;
  if (part.name == "input weight and bias") return x;
  if (part.name == "weights, not the biases") return x || h;
  if (part.name == "biases") return x && h;
  if (part.bias_x && !part.weight_x) return x;
  if (part.bias_h && !part.weight_h) return h;
  return true;
}

// The order in words, "rows of z, r, n used as r, z, n", with the parameters.
std::string order_text(Kind kind, const std::vector<int>& order, std::string_view part) {
  std::string rows, gates;
  for (size_t gate = 0; gate < order.size(); ++gate) {
    rows += (gate ? ", " : "") + gate_name(kind, order[gate]);
    gates += (gate ? ", " : "") + gate_name(kind, static_cast<int>(gate));
  }
  return "rows of " + rows + " used as " + gates + (part.empty() ? "" : ", in the " + std::string(part));
}

void add_gate_orders(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const Kind kind = problem.layers[std::max<int64_t>(scope.layer, 0)].cell.kind;
  if (kind == Kind::kRnn) return;
  for (const Part& part : kParts) {
    if (!any_direction(problem, scope, [&](const Layer&, const Direction& each) { return has_part(each, part); }))
      continue;
    std::vector<int> order(gates_of(kind));
    std::iota(order.begin(), order.end(), 0);
    while (std::next_permutation(order.begin(), order.end())) {
      changes.push_back({"gate_order", order_text(kind, order, part.name),
                         [scope, order, &part](Problem& changed) {
                           edit_directions(changed, scope,
                                           [&](Layer&, Direction& each) { permute_gates(each, order, part); });
                         },
                         true, part.rare ? InPairs::kLate : InPairs::kYes});
    }
  }
}

// Rearranges each block of rows as if its memory order had been mistaken: row-major for column-major, or the reverse.
void relay(Matrix& matrix, int64_t blocks, Move::Kind kind) {
  if (blocks != 0 && !matrix.empty()) matrix.moves.push_back({kind, blocks});
}

struct Which {
  std::string_view name;
  bool x, h;
};
constexpr Which kWhich[] = {
    {"recurrent weight", false, true}, {"input weight", true, false}, {"both weights", true, true}};

void add_transposes(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const auto square = [](const Layer& layer, const Matrix& matrix) { return matrix.columns == layer.hidden(); };
  for (const Which& which : kWhich) {
    const bool fits = !any_direction(problem, scope, [&](const Layer& layer, const Direction& each) {
      return (which.x && !square(layer, each.weight_x)) || (which.h && !square(layer, each.weight_h));
    });
    if (!fits) continue;
    changes.push_back({"transposed_weights", std::string(which.name) + ", gate by gate",
                       [scope, &which](Problem& changed) {
                         edit_directions(changed, scope, [&](Layer& layer, Direction& each) {
                           const int gates = gates_of(layer.cell.kind);
                           if (which.x) relay(each.weight_x, gates, Move::Kind::kWrittenByColumns);
                           if (which.h) relay(each.weight_h, gates, Move::Kind::kWrittenByColumns);
                         });
                       },
                       true});
  }
}

void add_memory_orders(const Scope& scope, std::vector<Change>& changes) {
  for (const bool whole : {true, false}) {
    for (const Move::Kind kind : {Move::Kind::kReadByColumns, Move::Kind::kWrittenByColumns}) {
      for (const Which& which : kWhich) {
        std::string detail = std::string(which.name) + (whole ? "" : ", gate by gate");
        detail += kind == Move::Kind::kReadByColumns ? "" : ", the other way";
        changes.push_back({"column_major", std::move(detail),
                           [scope, whole, kind, &which](Problem& changed) {
                             edit_directions(changed, scope, [&](Layer& layer, Direction& each) {
                               const int blocks = whole ? 1 : gates_of(layer.cell.kind);
                               if (which.x) relay(each.weight_x, blocks, kind);
                               if (which.h) relay(each.weight_h, blocks, kind);
                             });
                           },
                           true, !whole || kind == Move::Kind::kWrittenByColumns ? InPairs::kLate : InPairs::kYes});
      }
    }
  }
}

// With as many inputs as units, one weight fits in the place of the other.
void add_exchange(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const bool fits = !any_direction(problem, scope, [](const Layer&, const Direction& each) {
    return each.weight_x.columns != each.weight_h.columns || each.weight_x == each.weight_h;
  });
  if (!fits) return;
  changes.push_back({"weights_exchanged", "",
                     [scope](Problem& changed) {
                       edit_directions(changed, scope,
                                       [](Layer&, Direction& each) { std::swap(each.weight_x, each.weight_h); });
                     },
                     true, InPairs::kLate});
}

void add_biases(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const auto has = [&](std::vector<double> Direction::* member) {
    return any_direction(problem, scope, [&](const Layer&, const Direction& each) { return !(each.*member).empty(); });
  };
  const auto add = [&](std::string detail, void (*edit)(Layer&, Direction&), InPairs in_pairs = InPairs::kYes) {
    changes.push_back({"one_bias", std::move(detail),
                       [scope, edit](Problem& changed) { edit_directions(changed, scope, edit); }, false, in_pairs,
                       /*by_step=*/true});
  };
  if (has(&Direction::bias_h)) add("without the recurrent bias", [](Layer&, Direction& each) { each.bias_h.clear(); });
  if (has(&Direction::bias_x)) add("without the input bias", [](Layer&, Direction& each) { each.bias_x.clear(); });
  if (has(&Direction::bias_x) && has(&Direction::bias_h)) {
    add("without any bias", [](Layer&, Direction& each) { each.bias_x.clear(), each.bias_h.clear(); });
    add("the input bias twice", [](Layer&, Direction& each) { each.bias_h = each.bias_x; }, InPairs::kLate);
    add("the recurrent bias twice", [](Layer&, Direction& each) { each.bias_x = each.bias_h; }, InPairs::kLate);
  } else if (has(&Direction::bias_x)) {
    add("the bias twice", [](Layer&, Direction& each) { each.bias_h = each.bias_x; }, InPairs::kLate);
  }
  const bool single = has(&Direction::bias_x) && !has(&Direction::bias_h);
  if (!single || problem.layers[std::max<int64_t>(scope.layer, 0)].cell.kind != Kind::kGru) return;
  changes.push_back({"bias_inside_reset", "",
                     [scope](Problem& changed) {
                       edit_directions(changed, scope, [](Layer&, Direction& each) { each.bias_x.swap(each.bias_h); });
                     },
                     false, InPairs::kYes, /*by_step=*/true});
}

}  // namespace

void add_weight_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  add_gate_orders(problem, scope, changes);
  add_biases(problem, scope, changes);
  add_transposes(problem, scope, changes);
  add_memory_orders(scope, changes);
  add_exchange(problem, scope, changes);
  if (any_direction(problem, scope, [](const Layer&, const Direction& each) { return !each.peepholes.empty(); })) {
    changes.push_back({"peepholes", "ignored",
                       [scope](Problem& changed) {
                         edit_directions(changed, scope, [](Layer&, Direction& each) { each.peepholes.clear(); });
                       },
                       false, InPairs::kYes, /*by_step=*/true});
  }
}

}  // namespace weft::verify
