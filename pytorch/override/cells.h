#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"

namespace weft::override_kernels {

enum class Cell : uint8_t { kGru, kLstm, kRnnTanh, kRnnRelu };

/// gru, lstm, rnn_tanh, rnn_relu.
std::string name_of(Cell cell);
/// The cell of that name, for an operator. User's error if there is none.
Cell cell_named(std::string_view op, std::string_view name);
/// Rows of a weight in units of the hidden size: 3, 4, 1, 1.
int64_t gates_of(Cell cell);
/// 2 for an LSTM (h, c), else 1.
size_t carries_of(Cell cell);

/// The parameters of one layer and direction; kNoValue where there is none.
struct CellWeights {
  ir::ValueId w_ih = ir::kNoValue;                       ///< [gates*H, I]
  ir::ValueId w_hh = ir::kNoValue;                       ///< [gates*H, H], with a projection [gates*H, P]
  ir::ValueId b_ih = ir::kNoValue, b_hh = ir::kNoValue;  ///< [gates*H]
  ir::ValueId w_hr = ir::kNoValue;                       ///< [P, H]: h is projected
  ir::ValueId s_ih = ir::kNoValue, s_hh = ir::kNoValue, s_hr = ir::kNoValue;  ///< of 8-bit weights, a scale a row
};

/// One step as PyTorch documents it, input projection and all: from x [B,I] and the carries (h [B,H] or [B,P]; lstm: c
/// [B,H]) to the next carries. All of one floating dtype. `state` is what the product with w_hh takes: h, or h rounded.
/// `products`: the 16-bit type of products. Numbers of the step are rounded to it where they are stored
/// (ir::kExcessPrecision), as in PyTorch's kernels of that type: the two affine maps, gates, and whatever else the
/// derivative reads. The cotangents of the affine maps, which the backward's products read, are rounded too.
std::vector<ir::ValueId> cell_step(ir::Builder& body, Cell cell, const CellWeights& weights, ir::ValueId x,
                                   std::span<const ir::ValueId> carry, ir::ValueId state,
                                   std::optional<DType> products = std::nullopt);

/// The part of a step after its two affine maps. Of the weights it reads only the projection.
std::vector<ir::ValueId> cell_from_products(ir::Builder& body, Cell cell, ir::ValueId from_x, ir::ValueId from_h,
                                            std::span<const ir::ValueId> carry, const CellWeights& weights,
                                            std::optional<DType> products = std::nullopt);

}  // namespace weft::override_kernels
