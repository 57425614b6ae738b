#include "runtime/kernels/panels.h"

#include <algorithm>

#include "base/division.h"
#include "base/target.h"
#include "runtime/kernels/pack_entry.h"

namespace weft::runtime {
namespace {

/// The work of weft_panels. It divides nothing for each panel: a division takes tens of cycles, which would show in a
/// step of few rows.
class PanelLoop {
 public:
  PanelLoop(const PanelStage& stage, PanelOperands* operands, const PanelFunctions& functions, int64_t apart,
            bool backwards)
      : stage_(stage), operands_(operands), functions_(functions), apart_(apart), backwards_(backwards) {
    for (int64_t i = 0; i < stage.count; ++i) {
      packs_ = packs_ || packs_on_the_way(i);
      if (reads_weights(i)) (stage.products[i].layout.transposed ? reads_rows_ : reads_columns_) = true;
      reads_bytes_ = reads_bytes_ || (stage.products[i].widens && !operands[i].entry);
    }
  }

  /// Limits the loop to the member's columns.
  void set_columns(int64_t unit, int64_t units) {
    last_panel_ = stage_.panels;
    if (stage_.grain == 0 || units == 1) return;
    first_panel_ = bound(unit, units) / stage_.unroll;
    last_panel_ = ceil_div(bound(unit + 1, units), stage_.unroll);
  }

  /// Runs the rows in chunks, or all at once where panels are packed on the way.
  void run(int64_t first, int64_t last, int64_t steps) const {
    if (first >= last) return;
    const bool at_once = stage_.chunk_rows == 0 || packs_;
    const int64_t rows = at_once ? last - first : std::min(stage_.chunk_rows, last - first);
    const int64_t of_chunk = at_once || steps == 1 ? steps : std::max<int64_t>(1, stage_.chunk_rows / rows);
    for (int64_t step = 0; step < steps; step += of_chunk)
      for (int64_t row = first; row < last; row += rows)
        run_chunk(first, {row + step * apart_, std::min(rows, last - row), std::min(of_chunk, steps - step)});
  }

 private:
  /// `rows` rows in each of `steps` steps; `first`: the first row in the first step.
  struct Chunk {
    int64_t first, rows, steps;
  };
  /// How many blocks the rows of a step make, the least rows of a block, and how many blocks have a row more.
  struct Blocks {
    int64_t count, least, larger;
  };
  /// A block of rows: its number among the `count` blocks of all steps, and the first row of the next block.
  struct Block {
    int64_t row, rows, number, count, next;
  };
  /// The panels that are taken at once. Where panels are taken one by one, also the next panel; for the last panel
  /// `next` is the panel itself.
  struct Panels {
    int64_t first, count, next;
    bool meet_new_rows;  ///< no panel of the stage has been multiplied by the rows at hand
  };

  bool packs_on_the_way(int64_t product) const {
    return stage_.products[product].on_the_way && is_on_the_way(operands_[product].entry);
  }

  /// Whether a product reads unpacked weights: transposed weights along their rows, others by their columns.
  bool reads_weights(int64_t product) const { return !operands_[product].entry && operands_[product].weights; }

  int64_t bound(int64_t unit, int64_t units) const {
    return std::min(ceil_div(stage_.units, stage_.grain) * unit / units * stage_.grain, stage_.units);
  }

  /// How many panels are taken at once. With few rows several are, so that their chains of additions overlap. Panels
  /// that are packed on the way are taken one by one.
  int64_t panels_together(int64_t rows) const {
    if (packs_) return 1;
    if (stage_.has_bytes) return kBytePanelsTogether;
    if (reads_columns_) return std::clamp<int64_t>(kRowsOfTiles / std::max<int64_t>(1, rows), 1, kMostColumnPanels);
    if (rows >= kFewRows) return 1;
    return reads_bytes_ ? kBytePanelsTogether : kPanelsTogether;
  }

  /// Runs all panels for the rows of a chunk. `start` is the first row of all chunks.
  void run_chunk(int64_t start, const Chunk& chunk) const {
    const Blocks blocks = blocks_of(chunk.rows);
    const int64_t together = panels_together(blocks.least + (blocks.larger > 0 ? 1 : 0));
    const int64_t all = last_panel_ - first_panel_;
    const int64_t groups = together == 1 ? all : ceil_div(all, together);
    for (int64_t turn = 0; turn < groups; ++turn) {
      const int64_t group = backwards_ ? groups - 1 - turn : turn;
      const int64_t panel = first_panel_ + group * together;
      int64_t next = panel;
      if (backwards_ && group > 0) next = panel - 1;
      if (!backwards_ && group + 1 < groups) next = panel + 1;
      run_panels(start, chunk, blocks,
                 {panel, std::min(last_panel_ - panel, together), next, turn == 0 && stage_.chunk_rows > 0});
    }
  }

  /// Blocks of nearly the same size: a block of one or two rows has too few sums to hide the latency of its additions.
  Blocks blocks_of(int64_t rows) const {
    int64_t most = stage_.tile_rows;
    if ((reads_columns_ || reads_rows_) && !stage_.has_bytes && !packs_) most = std::max(most, kRowsOfPlain);
    const bool are_one_block = rows <= kRowsOfOneBlock && !reads_rows_ && !stage_.has_bytes;
    if (rows <= most || are_one_block) return {1, rows, 0};
    if (reads_rows_) {  // each block of few rows reads all weights again
      const int64_t at_once = target::rows_of_dots(vector_isa(active_isa()) == Isa::kAvx512);
      most = std::max(most / at_once * at_once, std::min(most, at_once));
    }
    const int64_t blocks = ceil_div(rows, most);
    return {blocks, rows / blocks, rows % blocks};
  }

  void run_panels(int64_t start, const Chunk& chunk, const Blocks& blocks, const Panels& panels) const {
    find_panels(panels);
    Block block{chunk.first, 0, 0, blocks.count * chunk.steps, 0};
    for (int64_t step = 0; step < chunk.steps; ++step) {
      block.row = chunk.first + step * apart_;
      for (int64_t i = 0; i < blocks.count; ++i, ++block.number, block.row += block.rows) {
        block.rows = blocks.least + (i < blocks.larger ? 1 : 0);
        const bool is_last = i + 1 == blocks.count && chunk.steps > 1;  // of a step: the next step's rows follow
        block.next = is_last ? chunk.first + (step + 1) * apart_ : block.row + block.rows;
        run_block(start, panels, block);
      }
    }
  }

  void run_block(int64_t start, const Panels& panels, const Block& block) const {
    if (functions_.prefetch)
      functions_.prefetch(functions_.prefetch_closure, panels.first, panels.count, block.row, block.rows);
    for (int64_t i = 0; i < stage_.count; ++i) multiply(i, panels, block, block.row - start);
    functions_.epilogue(functions_.closure, panels.first, panels.count, block.row, block.rows);
  }

  /// Sets the panels that the kernels read. Packs these panels first where a product packs on the way.
  void find_panels(const Panels& panels) const {
    for (int64_t i = 0; i < stage_.count; ++i) {
      PanelOperands& operands = operands_[i];
      operands.panels = operands.entry;
      if (packs_on_the_way(i))
        operands.panels = stage_.products[i].on_the_way(operands.entry, operands.weights, panels.first, panels.count,
                                                        &stage_.products[i].layout);
    }
  }

  /// The tiles of a product. While it multiplies, the kernel prefetches the block's part of the next panel: otherwise
  /// the core waits while weights of large layers come from the last-level cache. (Granite Rapids, LSTM B64 T64 H512,
  /// one thread, forward: f32 100 ms without, 90 with it.) Where the panels stay in the cache, it asks for the next
  /// rows, of which each block has several runs: more than a processor's own prefetcher follows in a page.
  void multiply(int64_t i, const Panels& panels, const Block& block, int64_t rows_before) const {
    const PanelProduct& product = stage_.products[i];
    const PanelOperands& operands = operands_[i];
    const ProductLayout& layout = product.layout;
    const void* left = static_cast<const char*>(operands.left) + rows_before * operands.lda * product.left_size;
    if (!product.kernel)
      return product.byte_rows(block.rows, layout.k, left, operands.lda, operands.panels, layout.n, layout.groups,
                               product.byte_columns, panels.first, panels.count, operands.tile,
                               block.rows * layout.groups * product.byte_columns);
    const char* ahead = nullptr;
    int64_t lines = 0;
    if (stage_.streams && panels.count == 1 && packs_before(operands.entry)) {
      const int64_t all = ceil_div(product.panel_bytes, target::kCacheLine);
      lines = block.count == 1 ? all : ceil_div(all, block.count);
      ahead = static_cast<const char*>(operands.entry) + panels.next * product.panel_bytes +
              block.number * lines * target::kCacheLine;
    } else if (panels.meet_new_rows && operands.lda == layout.k) {
      const int64_t row_bytes = operands.lda * product.left_size;
      lines = ceil_div(block.rows * row_bytes, target::kCacheLine);
      ahead = static_cast<const char*>(left) + (block.next - block.row) * row_bytes;
    }
    product.kernel(block.rows, left, operands.lda, operands.panels, operands.weights, panels.first, panels.count,
                   operands.tile, &layout, ahead, lines);
  }

  const PanelStage& stage_;
  PanelOperands* operands_;
  const PanelFunctions& functions_;
  int64_t apart_;  ///< rows from step to step
  bool backwards_;
  bool packs_ = false;          ///< panels of a product are packed on the way
  bool reads_rows_ = false;     ///< products of the stage are dot products along rows of the weights
  bool reads_columns_ = false;  ///< some product of the stage reads unpacked weights by columns
  bool reads_bytes_ = false;    ///< some product reads weights of 8 bits that could have panels
  int64_t first_panel_ = 0, last_panel_ = 0;
};

}  // namespace

extern "C" void weft_panels(const PanelStage* stage, PanelOperands* operands, const PanelFunctions* functions,
                            int64_t first, int64_t last, int64_t steps, int64_t apart, int64_t unit, int64_t units,
                            int64_t backwards) {
  PanelLoop loop(*stage, operands, *functions, apart, backwards != 0);
  loop.set_columns(unit, units);
  loop.run(first, last, steps);
}

}  // namespace weft::runtime
