#include "verify/layer.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>

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

// Replaces each element's index in the matrix after the move by its index before.
void move_back(const Move& move, const Matrix& matrix, std::vector<int64_t>& elements) {
  const int64_t rows = matrix.rows / move.blocks, columns = matrix.columns, size = rows * columns;
  for (int64_t& element : elements) {
    const int64_t block = element / size, inside = element % size;
    if (move.kind == Move::Kind::kBlocks)
      element = move.order[block] * size + inside;
    else if (move.kind == Move::Kind::kReadByColumns)
      element = block * size + inside % columns * rows + inside / columns;
    else
      element = block * size + inside % rows * columns + inside / rows;
  }
}

// Makes a move of a matrix whose blocks have so many rows.
void make(const Move& move, int64_t rows, int64_t columns, const double* from, double* to) {
  const int64_t size = rows * columns;
  for (int64_t block = 0; block < move.blocks; ++block) {
    if (move.kind == Move::Kind::kBlocks) {
      std::copy_n(from + move.order[block] * size, size, to + block * size);
      continue;
    }
    const bool read = move.kind == Move::Kind::kReadByColumns;
    const int64_t lines = read ? rows : columns, each = read ? columns : rows;
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t index = 0; index < each; ++index)
        to[block * size + line * each + index] = from[block * size + index * lines + line];
  }
}

// One row after all moves.
void read_row(const Matrix& matrix, int64_t row, std::vector<int64_t>& elements, double* result) {
  auto move = matrix.moves.rbegin();
  for (; move != matrix.moves.rend() && move->kind == Move::Kind::kBlocks; ++move) {
    const int64_t rows = matrix.rows / move->blocks;
    row = move->order[row / rows] * rows + row % rows;
  }
  if (move == matrix.moves.rend()) return void(std::copy_n(matrix.row(row), matrix.columns, result));
  elements.resize(matrix.columns);
  std::iota(elements.begin(), elements.end(), row * matrix.columns);
  for (; move != matrix.moves.rend(); ++move) move_back(*move, matrix, elements);
  for (const int64_t element : elements) *result++ = (*matrix.values)[element];
}

}  // namespace

Matrix Matrix::selected(const std::vector<int64_t>& numbers) const {
  std::vector<double> result(numbers.size() * columns);
  std::vector<int64_t> elements;
  for (size_t index = 0; index < numbers.size(); ++index) {
    double* to = result.data() + static_cast<int64_t>(index) * columns;
    if (moves.empty())
      std::copy_n(row(numbers[index]), columns, to);
    else
      read_row(*this, numbers[index], elements, to);
  }
  return {static_cast<int64_t>(numbers.size()), columns, std::move(result)};
}

Matrix Matrix::settled() const {
  Matrix result{rows, columns, values};
  for (const Move& move : moves) {
    std::vector<double> moved(values->size());
    make(move, rows / move.blocks, columns, result.values->data(), moved.data());
    result.values = std::move(moved);
  }
  return result;
}

std::vector<double>& Matrix::edit() {
  if (!moves.empty()) *this = settled();
  return values.edit();
}

int gates_of(Kind kind) { return kind == Kind::kGru ? 3 : kind == Kind::kLstm ? 4 : 1; }

bool Layer::operator==(const Layer& other) const {
  const bool same = cell == other.cell && directions == other.directions && merge == other.merge &&
                    exchanged == other.exchanged && steps == other.steps;
  if (!same || !elsewhere || !other.elsewhere) return same && !elsewhere && !other.elsewhere;
  return *elsewhere == *other.elsewhere;
}

bool Layer::has_moves() const {
  const auto moved = [](const Direction& each) { return !each.weight_x.moves.empty() || !each.weight_h.moves.empty(); };
  return std::any_of(directions.begin(), directions.end(), moved) || (elsewhere && elsewhere->has_moves());
}

Layer Layer::settled() const {
  Layer result = *this;
  for (Direction& direction : result.directions)
    for (Matrix* matrix : {&direction.weight_x, &direction.weight_h}) *matrix = matrix->settled();
  if (elsewhere) result.elsewhere = std::make_shared<const Layer>(elsewhere->settled());
  return result;
}

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
