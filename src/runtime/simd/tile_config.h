#pragma once

#include <cstdint>

namespace weft::runtime {
namespace {

// The tile unit of AMX has eight registers, called tiles, of up to 16 rows of 64 bytes. Its one instruction for bf16
// multiplies two of them and adds the product to a third. (Elsewhere in this folder a tile is a part of a product in
// memory.)

constexpr int kTileRows = 16;
constexpr int kTileBytes = 64;  ///< of a row

/// What LDTILECFG reads (Intel SDM, vol. 1, 18.2): the rows of each tile, and their bytes.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;  ///< of a load or store that was interrupted
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

/// The tiles of a block of the product, of one or two tiles' rows: (m, n) of the result, m of the left operand, n of
/// the right one. With one of rows there are four of columns, with two there are two. The right operand's tiles take
/// turns.
template <int M>
struct Tiles {
  static constexpr int kColumns = M == 1 ? 4 : 2;
  static constexpr int result(int m, int n) { return m * kColumns + n; }
  static constexpr int left(int m) { return 4 + m; }
  static constexpr int right(int n) { return 4 + M + n % (4 - M); }
};

/// The most rows of a block.
constexpr int64_t kRowsOfTiles = 2 * kTileRows;

struct TileConfigs {
  TileConfig of[kRowsOfTiles + 1];  ///< by the rows of a block; 0: none
};

constexpr TileConfigs tile_configs() {
  TileConfigs all{};
  for (int rows = 1; rows <= kRowsOfTiles; ++rows) {
    TileConfig& config = all.of[rows];
    config.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = kTileBytes;
      config.rows[tile] = kTileRows;
    }
    if (rows < kTileRows)
      for (int tile : {0, 1, 2, 3, Tiles<1>::left(0)}) config.rows[tile] = static_cast<uint8_t>(rows);
    if (rows > kTileRows)
      for (int tile : {Tiles<2>::result(1, 0), Tiles<2>::result(1, 1), Tiles<2>::left(1)})
        config.rows[tile] = static_cast<uint8_t>(rows - kTileRows);
  }
  return all;
}

constexpr TileConfigs kTileConfigs = tile_configs();

}  // namespace
}  // namespace weft::runtime
