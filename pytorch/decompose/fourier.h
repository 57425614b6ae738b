#pragma once

#include "decompose/parts.h"

namespace weft::decompose {

/// A discrete Fourier transform of rows: X[k] = scale * sum_j x[j] exp(sign 2 pi i j k / n).
///
/// Rows of real numbers are [..., taken]. Complex ones are [..., 2 * taken], the real parts and behind them the
/// imaginary ones. So are the results: [..., given] or [..., 2 * given].
///
/// It is made of products by constant matrices: of one where n is small, else by the factors of n (Cooley and Tukey,
/// Mathematics of Computation 19, 1965), with a factor of modulus one for each element between.
struct Fourier {
  int64_t n;       ///< the transform's length
  double sign;     ///< -1 forward, 1 inverse
  double scale;    ///< of all results
  bool from_real;  ///< whether the rows are real
  bool to_real;    ///< whether the results are: their real parts alone are computed
  int64_t taken;   ///< the elements of a row, of which those behind it are zeros
  int64_t given;   ///< the results of a row that are computed, the first ones

  Tensor operator()(const Tensor& rows) const;
};

/// The multiply-adds of a transform of one row; none where products are no way: where the length has a large prime
/// factor, or is very large.
std::optional<int64_t> fourier_work(int64_t n);

/// What the elements 0 to n/2 of a spectrum count in a sum over all n, of which the others are their conjugates, as
/// [1, 2 * (n/2 + 1)]: for the real parts and for the imaginary ones.
Tensor half_spectrum_weights(int64_t n, at::ScalarType dtype);

}  // namespace weft::decompose
