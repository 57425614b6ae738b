#include "verify/layer.h"

#include <array>
#include <string_view>

#include "base/error.h"

namespace weft::verify {
namespace {

void check_vector(const std::vector<double>& values, int64_t size, std::string_view name, size_t layer) {
  weft::check(values.empty() || static_cast<int64_t>(values.size()) == size,
              "layer {}: {} should have {} elements, got {}", layer, name, size, values.size());
}

void check_matrix(const Matrix& matrix, int64_t rows, int64_t columns, std::string_view name, size_t layer) {
  weft::check(matrix.rows == rows && matrix.columns == columns, "layer {}: {} should be {} x {}, got {} x {}", layer,
              name, rows, columns, matrix.rows, matrix.columns);
}

void check_direction(const Layer& layer, const Direction& direction, size_t index) {
  const int64_t gates = gates_of(layer.cell.kind), hidden = layer.hidden(), outputs = layer.outputs();
  check_matrix(direction.weight_x, gates * hidden, layer.inputs(), "weight_x", index);
  check_matrix(direction.weight_h, gates * hidden, outputs, "weight_h", index);
  check_vector(direction.bias_x, gates * hidden, "bias_x", index);
  check_vector(direction.bias_h, gates * hidden, "bias_h", index);
  check_vector(direction.peepholes, 3 * hidden, "peepholes", index);
  check_vector(direction.norm_x, gates * hidden, "norm_x", index);
  check_vector(direction.norm_h, gates * hidden, "norm_h", index);
  check_vector(direction.norm_c, hidden, "norm_c", index);
  check_vector(direction.norm_c_bias, hidden, "norm_c_bias", index);
  if (!direction.projection.empty()) {
    check_matrix(direction.projection, outputs, hidden, "projection", index);
  } else {
    weft::check(outputs == hidden, "layer {}: weight_h should have {} columns, got {}", index, hidden, outputs);
  }
  if (!direction.h0.empty()) check_matrix(direction.h0, direction.h0.rows, outputs, "h0", index);
  if (!direction.c0.empty()) check_matrix(direction.c0, direction.c0.rows, hidden, "c0", index);
}

}  // namespace

int gates_of(Kind kind) { return kind == Kind::kGru ? 3 : kind == Kind::kLstm ? 4 : 1; }

const Layer& Layer::at(int64_t turn, int64_t count) const {
  const bool first = turn == 0, last = turn + 1 == count;
  const bool here = steps == Steps::kAll || (steps == Steps::kFirst && first) || (steps == Steps::kLast && last) ||
                    (steps == Steps::kAllButFirst && !first) || (steps == Steps::kAllButLast && !last);
  return here ? *this : elsewhere->at(turn, count);
}

std::string gate_name(Kind kind, int gate) {
  constexpr std::string_view kGru = "rzn";
  constexpr std::string_view kLstm = "ifgo";
  return std::string(1, kind == Kind::kGru ? kGru[gate] : kind == Kind::kLstm ? kLstm[gate] : 'h');
}

void check(const std::vector<Layer>& layers) {
  weft::check(!layers.empty(), "there is no recurrent layer to compare");
  for (size_t index = 0; index < layers.size(); ++index) {
    const Layer& layer = layers[index];
    weft::check(layer.directions.size() == 1 || layer.directions.size() == 2,
                "layer {}: a layer has one direction or two, got {}", index, layer.directions.size());
    const int64_t rows = layer.directions[0].weight_h.rows;
    weft::check(rows % gates_of(layer.cell.kind) == 0, "layer {}: weight_h has {} rows, which {} gates don't divide",
                index, rows, gates_of(layer.cell.kind));
    for (const Direction& direction : layer.directions) check_direction(layer, direction, index);
    const int64_t given = index == 0 ? layer.inputs() : layers[index - 1].width();
    weft::check(layer.inputs() == given, "layer {}: takes {} inputs, but the layer before it gives {}", index,
                layer.inputs(), given);
  }
}

}  // namespace weft::verify
