#include "codegen/rows.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cstring>

#include "base/target.h"
#include "codegen/elements.h"
#include "codegen/half.h"
#include "codegen/pointwise.h"
#include "planning/cpu/prepack.h"
#include "runtime/cores.h"
#include "runtime/kernels.h"

namespace weft::codegen {
namespace {

using ir::Op;
using ir::OpCode;
using ir::ValueId;
using llvm::Value;
using planning::is_reduction;
using planning::Lowering;

constexpr int64_t kFewRows = 4;              // with fewer rows than this, a micro-kernel takes ...
constexpr int64_t kPanelsTogether = 4;       // ... this many panels at once
constexpr int64_t kBytePanelsTogether = 16;  // with weights of 8 bits so many by kFewRows rows: each call writes the
                                             // left operand in digits anew
constexpr int64_t kLongProduct = 96;         // multiply-adds a number, which hide asking for what is read behind them

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Of left operands in one chunk of rows, whose products go over all panels: half of a core's own cache, since all
/// weights are read again for each chunk, often from a distant cache.
int64_t chunk_bytes() { return runtime::private_cache_bytes() / 2; }

bool is_product(const Op& op) { return ir::traits_of(op.code).codegen == ir::Codegen::kProduct; }

/// A product of the stage, with its tile on the stack.
struct Product {
  const Op* op;
  int64_t groups, unroll, inner;
  DType left, dtype;  ///< of the left operand, and of the tile
  DType weights;      ///< bf16: the panels are in pairs; i8: there are no panels
  DType plain_type;   ///< of weights that are not packed: theirs, or f16, whose panels are f32
  Value* tile;
  Value *entry, *plain;     ///< of the pack's buffer (runtime/packs.h), and the weights that are not packed, or null
  Value* layout = nullptr;  ///< runtime::ProductLayout
  Value* is_on_the_way = nullptr;  ///< i1; null: the pack has a stage of its own for certain
  Value* panels = nullptr;         ///< as the kernel takes them, for the panels at hand

  /// Of one panel, [inner][groups * unroll] units.
  int64_t panel_bytes() const {
    const int64_t rows = weights == DType::kBF16 ? ceil_div(inner, 2) : inner;
    return rows * groups * unroll * target::kUnit;
  }

  /// The micro-kernel's name (codegen.h).
  std::string kernel() const {
    if (weights == DType::kI8) return fmt::format("weft_byte_rows_{}", name_of(left));
    std::string types(name_of(left));
    if (weights == DType::kBF16) types += "_pairs";
    if (plain_type != weights) types += fmt::format("_{}", name_of(plain_type));
    return fmt::format("weft_product_{}_{}", types, groups * unroll);
  }
};

class RowStage {
 public:
  RowStage(Frame& frame, const planning::Stage& stage)
      : frame_(frame), stage_(stage), b_(frame.b), elements_(frame, stage, [this](const planning::View& view) {
          const int64_t width = stage_.domain.back().constant();
          return tile_vector(products_.at(view.root), view.start.empty() ? 0 : view.start.back() / width);
        }) {
    for (const Op* op : stage.ops)
      if (is_product(*op)) add_product(*op);
    int64_t weights = 0;
    for (const auto& [value, product] : products_)
      weights += product.panel_bytes() * ceil_div(stage.domain.back().constant(), stage.lanes * product.unroll);
    streams_ = weights > runtime::private_cache_bytes() / 4 * 3;
  }

  void emit(Value* first, Value* last, bool chunked) {
    if (products_.empty()) {
      UnitRange columns = column_range(frame_, stage_);
      frame_.loop(first, last, 1, [&](Value* row) { emit_plain_row(row, columns); });
      return;
    }
    UnitRange range = unit_range(frame_, stage_);
    if (chunked) {
      int64_t inner = 1;
      for (auto& [value, product] : products_) inner = std::max(inner, product.inner * size_of(product.left));
      const int64_t fit = chunk_bytes() / inner / stage_.tile_rows;
      const int64_t rows = std::max<int64_t>(1, fit) * stage_.tile_rows;
      emit_chunks(first, last, rows, range);
    } else {
      emit_panels(first, last, range);
    }
  }

 private:
  void add_product(const Op& op) {
    const ir::Type& left = frame_.type(op.operands[0]);
    const planning::Panels panels = planning::kernel_panels(*frame_.schedule.program, op).value();
    Product product{.op = &op,
                    .groups = panels.groups,
                    .unroll = panels.unroll,
                    .inner = left.shape.back().constant(),
                    .left = left.dtype,
                    .dtype = frame_.type(op.results[0]).dtype,
                    .weights = panels.weights,
                    .plain_type = panels.weights,
                    .tile = nullptr,
                    .entry = frame_.address(op.operands[1]),
                    .plain = llvm::ConstantPointerNull::get(b_.getPtrTy())};
    has_bytes_ = has_bytes_ || product.weights == DType::kI8;
    int64_t rows = std::max(stage_.tile_rows, kFewRows * kBytePanelsTogether);  // a further product may be of bytes
    product.tile = frame_.stack(memory_type(b_, product.dtype), rows * product.groups * product.unroll * stage_.lanes);
    if (product.weights != DType::kI8) add_weights(product);
    products_.emplace(op.results[0], product);
  }

  void add_weights(Product& product) {
    runtime::ProductLayout layout{.k = product.inner,
                                  .n = frame_.type(product.op->results[0]).shape.back().constant() / product.groups,
                                  .groups = product.groups,
                                  .unroll = product.unroll,
                                  .ld = 0,
                                  .transposed = 0,
                                  .c_step = kFewRows * product.groups * product.unroll * stage_.lanes};
    if (const Op* pack = planning::pack_that_may_be_left_out(frame_.schedule, product.op->operands[1])) {
      const planning::PackSource from = planning::source_of(frame_.schedule, *pack);
      product.plain_type = frame_.type(from.root).dtype;
      product.plain = b_.CreateConstGEP1_64(b_.getInt8Ty(), frame_.address(from.root),
                                            static_cast<uint64_t>(from.skip * size_of(product.plain_type)));
      layout.ld = from.ld;
      layout.transposed = pack->attr_or<bool>("transpose_b", false) ? 1 : 0;
      product.is_on_the_way =
          b_.CreateICmpNE(b_.CreateAnd(b_.CreatePtrToInt(product.entry, b_.getInt64Ty()), 1), frame_.i64(0));
      packs_ = packs_ ? b_.CreateOr(packs_, product.is_on_the_way) : product.is_on_the_way;
    }
    product.layout = frame_.constants(fields(layout));
  }

  // ---- rows without a product

  void emit_plain_row(Value* row, const UnitRange& columns) {
    elements_.at_row(row);
    std::vector<const Op*> reductions;
    std::vector<Value*> sums;
    for (const Op* op : stage_.ops)
      if (is_reduction(*op)) {
        reductions.push_back(op);
        sums.push_back(neutral(*op));
      }
    auto emit_column = [&](Value* column, const std::vector<Value*>& carried) {
      sums_.clear();
      for (size_t i = 0; i < reductions.size(); ++i) sums_[reductions[i]] = carried[i];
      emit_element(column);
      std::vector<Value*> next;
      for (const Op* op : reductions) next.push_back(sums_[op]);
      return next;
    };
    auto totals = frame_.loop(columns.first, columns.last, stage_.lanes, sums, emit_column);
    for (size_t i = 0; i < reductions.size(); ++i) store_reduction(*reductions[i], totals[i], row);
  }

  Value* neutral(const Op& op) {
    DType dtype = frame_.type(op.results[0]).dtype;
    llvm::Type* type = vector_of(register_type(b_, dtype), stage_.lanes);
    if (op.code == OpCode::kReduceSum) return llvm::Constant::getNullValue(type);
    if (is_floating(dtype)) return llvm::ConstantFP::getInfinity(type, true);
    if (dtype == DType::kBool) return llvm::Constant::getNullValue(type);
    return llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(static_cast<unsigned>(8 * size_of(dtype))));
  }

  Value* combine(const Op& op, Value* x, Value* y) {
    bool real = x->getType()->isFPOrFPVectorTy();
    if (op.code == OpCode::kReduceSum) {
      if (frame_.type(op.results[0]).dtype == DType::kBool) return b_.CreateOr(x, y);
      return real ? b_.CreateFAdd(x, y) : b_.CreateAdd(x, y);
    }
    if (real) return emit_maximum(b_, x, y);
    if (frame_.type(op.results[0]).dtype == DType::kBool) return b_.CreateOr(x, y);
    return b_.CreateSelect(b_.CreateICmpSGT(x, y), x, y);
  }

  void store_reduction(const Op& op, Value* total, Value* row) {
    for (int64_t half = stage_.lanes / 2; half >= 1; half /= 2) {
      std::vector<int> low, high;
      for (int64_t i = 0; i < half; ++i) {
        low.push_back(static_cast<int>(i));
        high.push_back(static_cast<int>(i + half));
      }
      total = combine(op, b_.CreateShuffleVector(total, low), b_.CreateShuffleVector(total, high));
    }
    Value* scalar = b_.CreateExtractElement(total, uint64_t{0});
    DType dtype = frame_.type(op.results[0]).dtype;
    if (is_half(dtype)) scalar = emit_round_to_half(b_, scalar, dtype);  // the sum was accumulated in f32
    scalar = emit_to_memory(b_, scalar, dtype);
    for (Value* target : frame_.targets.at(op.results[0]))
      b_.CreateAlignedStore(scalar, frame_.offset(target, row, size_of(dtype)),
                            llvm::Align(static_cast<uint64_t>(size_of(dtype))));
  }

  // ---- products

  /// The rows in chunks, so that the left operands of a chunk stay in L2 while its products go over all panels. Where
  /// panels are packed on the way, all rows at once.
  void emit_chunks(Value* first, Value* last, int64_t rows, const UnitRange& range) {
    Value* end = last;
    Value* chunks = b_.CreateSDiv(b_.CreateAdd(b_.CreateSub(last, first), frame_.i64(rows - 1)), frame_.i64(rows));
    if (packs_) chunks = b_.CreateSelect(packs_, frame_.minimum(chunks, frame_.i64(1)), chunks);
    frame_.loop(frame_.i64(0), chunks, 1, [&](Value* chunk) {
      Value* row = b_.CreateAdd(first, b_.CreateMul(chunk, frame_.i64(rows)));
      Value* until = frame_.minimum(b_.CreateAdd(row, frame_.i64(rows)), end);
      emit_panels(row, packs_ ? b_.CreateSelect(packs_, end, until) : until, range);
    });
  }

  /// How many panels are taken at once. With few rows several, so that their chains of additions overlap; on the way
  /// one is packed at a time.
  Value* panels_together(Value* first, Value* last) {
    Value* few = b_.CreateICmpSLT(b_.CreateSub(last, first), frame_.i64(kFewRows));
    Value* together =
        has_bytes_ ? frame_.i64(kBytePanelsTogether) : b_.CreateSelect(few, frame_.i64(kPanelsTogether), frame_.i64(1));
    return packs_ ? b_.CreateSelect(packs_, frame_.i64(1), together) : together;
  }

  /// Loops over the panels, and for each panel over the blocks of rows.
  void emit_panels(Value* first, Value* last, const UnitRange& range) {
    Value* unroll = frame_.i64(stage_.unroll);
    Value* first_panel = b_.CreateUDiv(range.first, unroll);
    Value* last_panel = b_.CreateUDiv(b_.CreateAdd(range.last, frame_.i64(stage_.unroll - 1)), unroll);
    const int64_t tile_rows = has_bytes_ ? kFewRows : stage_.tile_rows;
    Value* together = panels_together(first, last);
    Value* groups = b_.CreateUDiv(
        b_.CreateAdd(b_.CreateSub(last_panel, first_panel), b_.CreateSub(together, frame_.i64(1))), together);
    frame_.loop(frame_.i64(0), groups, 1, [&](Value* turn) {
      Value* group = turn;
      if (frame_.backwards)
        group = b_.CreateSelect(frame_.backwards, b_.CreateSub(b_.CreateSub(groups, frame_.i64(1)), turn), turn);
      Value* panel = b_.CreateAdd(first_panel, b_.CreateMul(group, together));
      Value* panels = frame_.minimum(b_.CreateSub(last_panel, panel), together);
      for (auto& [value, product] : products_) find_panels(product, panel, panels);
      Value* next = next_panel(panel, group, groups);
      for_blocks_of_rows(first, last, tile_rows, [&](Value* row, Value* rows, Value* block, Value* blocks) {
        expect(panel, panels, row, rows);
        for (auto& [value, product] : products_)
          call_kernel(product, panel, panels, row, rows, ahead(product, panels, next, block, blocks));
        frame_.loop(frame_.i64(0), panels, 1, [&](Value* j) {
          Value* tile_row = b_.CreateMul(j, frame_.i64(kFewRows));
          frame_.loop(frame_.i64(0), rows, 1, [&](Value* i) {
            emit_epilogue(b_.CreateAdd(panel, j), b_.CreateAdd(row, i), b_.CreateAdd(tile_row, i));
          });
        });
      });
    });
  }

  /// Asks for what the ops behind the products of a block will read, where the processor's own prefetcher doesn't: the
  /// products take long enough for it to come from memory. (LSTM B257 T10 H422 on Zen 4: 54 ms without, 46 with it.
  /// With H416, whose rows are whole cache lines, it changed nothing.)
  void expect(Value* panel, Value* panels, Value* row, Value* rows) {
    const std::vector<planning::View> views = elements_.astride_lines();
    const bool is_long = std::ranges::any_of(products_, [](auto& each) { return each.second.inner >= kLongProduct; });
    if (views.empty() || !is_long) return;
    Value* first = b_.CreateMul(panel, frame_.i64(stage_.unroll));
    frame_.loop(frame_.i64(0), b_.CreateMul(panels, frame_.i64(stage_.unroll)), 1, [&](Value* unit) {
      Value* column = b_.CreateMul(b_.CreateAdd(first, unit), frame_.i64(stage_.lanes));
      frame_.loop(frame_.i64(0), rows, 1, [&](Value* i) { elements_.expect(views, b_.CreateAdd(row, i), column); });
    });
  }

  /// The panel after the one at hand, where panels come one by one and a core's own cache doesn't hold those of all
  /// products; else null. At the last the loop ends, and it stands in for the next.
  Value* next_panel(Value* panel, Value* group, Value* groups) {
    if (!streams_) return nullptr;
    Value* end = b_.CreateSub(groups, frame_.i64(1));
    Value* forwards = b_.CreateICmpULT(group, end);
    if (!frame_.backwards) return b_.CreateSelect(forwards, b_.CreateAdd(panel, frame_.i64(1)), panel);
    Value* before = b_.CreateICmpUGT(group, frame_.i64(0));
    Value* step = b_.CreateSelect(frame_.backwards, b_.CreateSub(frame_.i64(0), b_.CreateZExt(before, b_.getInt64Ty())),
                                  b_.CreateZExt(forwards, b_.getInt64Ty()));
    return b_.CreateAdd(panel, step);
  }

  /// What a product asks for while it multiplies a block of rows: where it begins, and how many lines.
  struct Ahead {
    Value *from, *lines;
  };

  /// A block's part of the next panel. Without that the weights of large layers come from the last-level cache while
  /// nobody multiplies. (Granite Rapids, LSTM B64 T64 H512, one thread, forward: f32 100 ms without, 90 with it.)
  Ahead ahead(const Product& product, Value* panels, Value* next, Value* block, Value* blocks) {
    if (!next || product.weights == DType::kI8) return {llvm::ConstantPointerNull::get(b_.getPtrTy()), frame_.i64(0)};
    Value* from = frame_.offset(product.entry, next, product.panel_bytes());
    const int64_t lines = ceil_div(product.panel_bytes(), target::kCacheLine);
    Value* part = b_.CreateUDiv(b_.CreateAdd(frame_.i64(lines - 1), blocks), blocks);
    Value* none = b_.CreateOr(b_.CreateICmpNE(panels, frame_.i64(1)), b_.CreateIsNull(product.entry));
    if (product.is_on_the_way) none = b_.CreateOr(none, product.is_on_the_way);
    return {frame_.offset(from, b_.CreateMul(block, part), target::kCacheLine),
            b_.CreateSelect(none, frame_.i64(0), part)};
  }

  /// Blocks of at most `most` rows and nearly the same size: a block of one or two rows has too few sums to hide the
  /// latency of its additions.
  void for_blocks_of_rows(Value* first, Value* last, int64_t most,
                          const std::function<void(Value* row, Value* rows, Value* block, Value* blocks)>& body) {
    Value* all = b_.CreateSub(last, first);
    Value* blocks = b_.CreateUDiv(b_.CreateAdd(all, frame_.i64(most - 1)), frame_.i64(most));
    Value* divisor = b_.CreateSelect(b_.CreateICmpEQ(blocks, frame_.i64(0)), frame_.i64(1), blocks);
    Value* least = b_.CreateUDiv(all, divisor);
    Value* larger = b_.CreateSub(all, b_.CreateMul(least, divisor));  // blocks with a row more
    frame_.loop(frame_.i64(0), blocks, 1, {first}, [&](Value* block, const std::vector<Value*>& at) {
      Value* more = b_.CreateZExt(b_.CreateICmpULT(block, larger), b_.getInt64Ty());
      Value* rows = b_.CreateAdd(least, more);
      body(at[0], rows, block, blocks);
      return std::vector<Value*>{b_.CreateAdd(at[0], rows)};
    });
  }

  /// Packs the panels at hand if that is done on the way.
  void find_panels(Product& product, Value* panel, Value* count) {
    product.panels = product.entry;
    if (!product.is_on_the_way) return;
    llvm::Type *pointer = b_.getPtrTy(), *integer = b_.getInt64Ty();
    auto* type = llvm::FunctionType::get(pointer, {pointer, pointer, integer, integer, pointer}, false);
    const std::string name = fmt::format("weft_on_the_way_{}", name_of(product.plain_type));
    product.panels = b_.CreateCall(frame_.runtime_function(name, type),
                                   {product.entry, product.plain, panel, count, product.layout});
  }

  void call_kernel(const Product& product, Value* panel, Value* count, Value* row, Value* rows, const Ahead& ahead) {
    const ir::Shape& shape = frame_.type(product.op->operands[0]).shape;
    planning::View left = planning::resolve(frame_.schedule, product.op->operands[0], shape);
    RowIndex index(frame_, shape, row);
    Value* a = frame_.offset(frame_.address(left.root), index.elements(left), size_of(product.left));
    const ir::Shape& root = frame_.type(left.root).shape;
    Value* lda = root.size() > 1 ? frame_.size(root.back()) : frame_.i64(0);
    int64_t width = product.groups * product.unroll * stage_.lanes;
    llvm::Type* pointer = b_.getPtrTy();
    llvm::Type* integer = b_.getInt64Ty();
    if (product.weights == DType::kI8) {
      auto* rows_type = llvm::FunctionType::get(
          b_.getVoidTy(),
          {integer, integer, pointer, integer, pointer, integer, integer, integer, integer, integer, pointer, integer},
          false);
      b_.CreateCall(
          frame_.runtime_function(product.kernel(), rows_type),
          {rows, frame_.i64(product.inner), a, lda, product.panels, frame_.i64(stage_.domain.back().constant()),
           frame_.i64(product.groups), frame_.i64(product.unroll * stage_.lanes), panel, count, product.tile,
           frame_.i64(kFewRows * width)});
      return;
    }
    auto* type = llvm::FunctionType::get(
        b_.getVoidTy(),
        {integer, pointer, integer, pointer, pointer, integer, integer, pointer, pointer, pointer, integer}, false);
    b_.CreateCall(frame_.runtime_function(product.kernel(), type),
                  {rows, a, lda, product.panels, product.plain, panel, count, product.tile, product.layout, ahead.from,
                   ahead.lines});
  }

  static std::vector<uint64_t> fields(const runtime::ProductLayout& layout) {
    static_assert(sizeof(layout) == 7 * sizeof(int64_t));
    std::vector<uint64_t> all(7);
    std::memcpy(all.data(), &layout, sizeof(layout));
    return all;
  }

  void emit_epilogue(Value* panel, Value* row, Value* tile_row) {
    elements_.at_row(row);
    tile_row_ = tile_row;
    Value* first_unit = b_.CreateMul(panel, frame_.i64(stage_.unroll));
    auto at_unit = [&](Value* unit) {
      tile_unit_ = unit;
      emit_element(b_.CreateMul(b_.CreateAdd(first_unit, unit), frame_.i64(stage_.lanes)));
    };
    if (stage_.unroll == 1) {
      at_unit(frame_.i64(0));
      return;
    }
    int64_t all = ceil_div(stage_.domain.back().constant(), stage_.lanes);
    Value* units = frame_.minimum(b_.CreateSub(frame_.i64(all), first_unit), frame_.i64(stage_.unroll));
    frame_.loop(frame_.i64(0), units, 1, at_unit);
  }

  Value* tile_vector(const Product& product, int64_t group) {
    int64_t width = product.groups * product.unroll * stage_.lanes;
    Value* index = b_.CreateAdd(
        b_.CreateMul(tile_row_, frame_.i64(width)),
        b_.CreateMul(b_.CreateAdd(tile_unit_, frame_.i64(group * product.unroll)), frame_.i64(stage_.lanes)));
    llvm::Type* type = vector_of(memory_type(b_, product.dtype), stage_.lanes);
    return b_.CreateAlignedLoad(type, frame_.offset(product.tile, index, size_of(product.dtype)), llvm::Align(64));
  }

  void store_product(const Op& op) {
    if (!frame_.targets.contains(op.results[0])) return;
    const Product& product = products_.at(op.results[0]);
    int64_t width = stage_.domain.back().constant();
    for (int64_t group = 0; group < product.groups; ++group)
      elements_.store(op.results[0], tile_vector(product, group), frame_.i64(width * product.groups),
                      frame_.i64(width * group));
  }

  // ---- one vector of every op

  void emit_element(Value* column) {
    elements_.at_column(column);
    for (const Op* op : stage_.ops) {
      if (is_product(*op))
        store_product(*op);
      else if (is_reduction(*op))
        add_to_reduction(*op);
      else
        elements_.emit(*op);
    }
  }

  void add_to_reduction(const Op& op) {
    Value* value = elements_.read(op.operands[0]);
    if (Value* mask = elements_.columns().mask()) value = b_.CreateSelect(mask, value, neutral(op));
    sums_[&op] = combine(op, sums_[&op], value);
  }

  Frame& frame_;
  const planning::Stage& stage_;
  llvm::IRBuilder<>& b_;
  Elements elements_;
  std::map<ValueId, Product> products_;
  bool has_bytes_ = false;  ///< weights of 8 bits
  bool streams_ = false;    ///< a core's own cache doesn't hold the panels of all products
  Value* packs_ = nullptr;  ///< i1: whether panels of a product are packed on the way; null: of none
  Value* tile_row_ = nullptr;
  Value* tile_unit_ = nullptr;
  std::map<const Op*, Value*> sums_;
};

}  // namespace

UnitRange unit_range(Frame& frame, const planning::Stage& stage) {
  auto& b = frame.b;
  Value* lanes = frame.i64(stage.lanes);
  Value* all = b.CreateUDiv(b.CreateAdd(frame.size(stage.domain.back()), frame.i64(stage.lanes - 1)), lanes);
  if (!planning::splits_columns(stage)) return {frame.i64(0), all};
  const int64_t grain = planning::column_grain(stage);
  Value* grains = b.CreateUDiv(b.CreateAdd(all, frame.i64(grain - 1)), frame.i64(grain));
  auto bound = [&](Value* unit) {
    Value* share = b.CreateUDiv(b.CreateMul(grains, unit), frame.units);
    return frame.minimum(b.CreateMul(share, frame.i64(grain)), all);
  };
  return {bound(frame.unit), bound(b.CreateAdd(frame.unit, frame.i64(1)))};
}

UnitRange column_range(Frame& frame, const planning::Stage& stage) {
  UnitRange range = unit_range(frame, stage);
  Value* lanes = frame.i64(stage.lanes);
  return {frame.b.CreateMul(range.first, lanes),
          frame.minimum(frame.b.CreateMul(range.last, lanes), frame.size(stage.domain.back()))};
}

void emit_rows(Frame& frame, const planning::Stage& stage, Value* first, Value* last, bool chunked) {
  // A row without elements still has a sum, 0.
  if (!stage.has_reduction) last = end_of_rows(frame, stage.domain.back(), first, last);
  RowStage(frame, stage).emit(first, last, chunked);
}

}  // namespace weft::codegen
