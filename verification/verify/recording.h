#pragma once

#include <array>
#include <vector>

#include "verify/bounded.h"

namespace weft::verify {

/// The recorded values of one direction of one layer of an implementation; empty where none were recorded.
struct Recorded {
  std::vector<double> h;                     // [T, B, P]
  std::vector<double> c;                     // [T, B, H]
  std::array<std::vector<double>, 4> gates;  // [T, B, H] each, in the order of the rows
  std::vector<double> hn;                    // [B, P]
  std::vector<double> cn;                    // [B, H]
};

/// A recording of an implementation: its inputs and its results.
struct Recording {
  int64_t steps = 0;
  int64_t batch = 0;
  Precision precision = Precision::of(DType::kF64);
  bool own = false;                           // made by record(), so computed in float64
  std::vector<double> x;                      // [T, B, I], of the first layer
  std::vector<std::vector<Recorded>> layers;  // by layer and direction
  std::vector<std::vector<double>> inputs;    // by layer: [T, B, I]; empty where it isn't known
  std::vector<double> merged;                 // [T, B, P]: the last layer's result where nothing else of it is known
};

/// Runs the layers on x [T, B, I] and records everything.
Recording record(const std::vector<Layer>& layers, std::vector<double> x, int64_t steps, int64_t batch);

/// Two directions' results [T, B, P] as the layer's.
std::vector<double> merged(Merge merge, const std::vector<const std::vector<double>*>& parts, int64_t rows,
                           int64_t columns);

/// The initial state's row for row `row` of the batch; zeros of `size` where there is no state.
std::vector<double> initial(const Matrix& state, int64_t row, int64_t size);

/// Row (step, row) of an array [T, B, columns].
std::vector<double> row_of(const std::vector<double>& array, int64_t step, int64_t row, int64_t batch, int64_t columns);

}  // namespace weft::verify
