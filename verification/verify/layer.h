#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "verify/activation.h"
#include "verify/shared.h"

namespace weft::verify {

/// What recurrent layers compute, in the layout and by the equations of verification/python/formats/_layers.py.
enum class Kind { kGru, kLstm, kRnn };

/// The number of a cell's gates: 3, 4 or 1.
int gates_of(Kind kind);

/// The name of row block `gate`: r, z, n; i, f, g, o; h.
std::string gate_name(Kind kind, int gate);

/// A rearrangement of a matrix, which has blocks of rows: the blocks in another order, or each block's elements as if
/// one had mistaken its memory order: a row-major buffer is read as column-major, or the reverse.
struct Move {
  enum class Kind { kBlocks, kReadByColumns, kWrittenByColumns };
  Kind kind;
  int64_t blocks;
  std::array<int, 4> order{};  // of kBlocks: block i becomes what block order[i] was

  bool operator==(const Move&) const = default;
};

/// A row-major matrix; empty where a cell has no such parameter. A search rearranges large weights hundreds of times
/// and looks at few of their elements, so rearrangements are kept and made where an element is read.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  Shared<std::vector<double>> values;  // before the moves
  std::vector<Move> moves{};

  bool empty() const { return values->empty() && rows == 0; }
  /// A row of a matrix without moves.
  const double* row(int64_t index) const { return values->data() + index * columns; }
  /// The rows with these numbers, as a matrix without moves.
  Matrix selected(const std::vector<int64_t>& numbers) const;
  /// The same matrix, with all moves carried out.
  Matrix settled() const;
  /// The values, for changing, after all moves.
  std::vector<double>& edit();
  bool operator==(const Matrix&) const = default;
};

/// The parameters of one direction; G gates, I inputs, H units, P outputs. Vectors are empty where the cell has none.
struct Direction {
  Matrix weight_x;                  // [G*H, I]
  Matrix weight_h;                  // [G*H, P]
  std::vector<double> bias_x;       // [G*H]
  std::vector<double> bias_h;       // [G*H]
  Matrix projection;                // [P, H]
  std::vector<double> peepholes;    // [3*H], of i, f, o
  std::vector<double> norm_x;       // [G*H]
  std::vector<double> norm_h;       // [G*H]
  std::vector<double> norm_c;       // [H]
  std::vector<double> norm_c_bias;  // [H]
  Matrix h0;                        // [B, P], or [1, P] for every row
  Matrix c0;                        // [B, H], or [1, H]
  bool reverse = false;
  bool flipped = false;  // fault only: unrecorded results are in the other order of time

  bool operator==(const Direction&) const = default;
};

/// Which of an LSTM's gates is one minus the other.
enum class Coupled { kNone, kInput, kForget };

/// The uses of the state that read the initial state instead of the last step's; always a fault.
enum class Stale { kNone, kProducts, kBlend, kHidden, kCell, kAll };

/// A difference of an implementation in one gate; always a fault.
struct GateFault {
  // Factors of the gate's terms: 0 for a term that is left out.
  double input = 1, recurrent = 1, input_bias = 1, recurrent_bias = 1, peephole = 1;
  double offset = 0;  // added to the activation's argument
  std::optional<double> clip;
  std::optional<Activation> activation;

  bool operator==(const GateFault&) const = default;
};

/// Where a GRU with its reset gate after the product adds the biases b_in and b_hn of its gate n: n = g(W_in x + b_in +
/// r (W_hn h + b_hn)), or one of several faults.
enum class Biases { kInPlace, kExchanged, kOutside, kInside, kInputInBoth, kRecurrentInBoth };

/// The steps with a fault, by the turn of the direction.
enum class Steps { kAll, kFirst, kLast, kAllButFirst, kAllButLast };

/// The computation in a layer's directions.
struct Cell {
  Kind kind = Kind::kGru;
  bool reset_after = true;
  Activation gate{Activation::Kind::kSigmoid};
  Activation activation{Activation::Kind::kTanh};
  Activation output{Activation::Kind::kTanh};
  double clip = std::numeric_limits<double>::infinity();
  double cell_clip = std::numeric_limits<double>::infinity();
  Coupled coupled = Coupled::kNone;
  std::optional<double> norm_eps;
  std::array<double, 2> zoneout{};  // of h and c: p times the old, 1 - p times the new

  // Only faults set these.
  bool swapped_update = false;  // h' = z n + (1 - z) h
  Biases biases = Biases::kInPlace;
  std::array<GateFault, 4> faults{};
  Stale stale = Stale::kNone;
  int operand_bits = 0;  // if not 0, operands of products are rounded to so many bits
  double output_clip = std::numeric_limits<double>::infinity();  // bound of an LSTM's h

  bool operator==(const Cell&) const = default;
};

enum class Merge { kConcat, kSum, kMul, kAve };

struct Layer {
  Cell cell;
  std::vector<Direction> directions;
  Merge merge = Merge::kConcat;
  bool exchanged = false;                  // fault only: the directions' unrecorded results are exchanged
  Steps steps = Steps::kAll;               // fault only: the steps with this layer; all others have `elsewhere`
  std::shared_ptr<const Layer> elsewhere;  // the layer in all other steps

  bool operator==(const Layer& other) const;

  int64_t inputs() const { return directions[0].weight_x.columns; }
  int64_t hidden() const { return directions[0].weight_h.rows / gates_of(cell.kind); }
  /// Whether there are moves of matrices to be made; settled() is the layer after all moves.
  bool has_moves() const;
  Layer settled() const;
  /// The layer at one turn of `count`.
  const Layer& at(int64_t turn, int64_t count) const;
  /// The outputs P of one direction.
  int64_t outputs() const { return directions[0].weight_h.columns; }
  /// Columns of the layer's result.
  int64_t width() const { return outputs() * (merge == Merge::kConcat ? static_cast<int64_t>(directions.size()) : 1); }
};

/// Throws weft::Error, which names the parameter and the shapes, if two of them don't fit.
void check(const std::vector<Layer>& layers);

}  // namespace weft::verify
