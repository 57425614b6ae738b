#include "codegen/rows.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>

#include "base/division.h"
#include "base/target.h"
#include "codegen/elements.h"
#include "codegen/half.h"
#include "codegen/pointwise.h"
#include "planning/cpu/prepack.h"
#include "runtime/kernels/panels.h"
#include "runtime/threads/cores.h"

namespace weft::codegen {
namespace {

using ir::Op;
using ir::ValueId;
using llvm::Value;
using planning::is_reduction;
using planning::Lowering;

constexpr int64_t kLongProduct = 96;  // multiply-adds for each element; from here on they hide a prefetch for the ops
                                      // after them

/// The bytes of left operands in one chunk of rows, which is multiplied by all panels before the next. It is half of a
/// core's own cache: each chunk reads all weights again, often from a distant cache.
int64_t chunk_bytes() { return runtime::private_cache_bytes() / 2; }

/// A product of the stage, with its tile on the stack.
struct Product {
  const Op* op;
  int64_t groups, unroll, inner;
  DType left, dtype;  ///< of the left operand, and of the tile
  DType weights;      ///< bf16: the panels are in pairs; i8: there are no panels
  DType plain_type;   ///< unpacked weights: their type; f16 and i8 widen to panels of f32
  runtime::ProductLayout layout;
  Value* tile;
  Value *entry, *plain;          ///< the pack's buffer (runtime/kernels/packs.h); the unpacked weights, or null
  bool may_be_left_out = false;  ///< the pack

  /// The bytes of one panel, [inner][groups * unroll] units.
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
      if (planning::is_stage_product(*op)) add_product(*op);
  }

  void emit(Value* first, Value* last, bool alone) {
    if (stage_.row_group > 0) {
      emit_groups(first, last);
      return;
    }
    if (products_.empty()) {
      UnitRange columns = column_range(frame_, stage_);
      frame_.loop(first, last, 1, [&](Value* row) { emit_plain_row(row, columns); });
      return;
    }
    emit_panels(first, last, alone);
  }

 private:
  void add_product(const Op& op) {
    const ir::Type& left = frame_.type(op.operands[0]);
    const planning::Panels panels = planning::kernel_panels(*frame_.schedule.program, op).value();
    const int64_t lanes = panels.groups * panels.unroll * stage_.lanes;
    Product product{.op = &op,
                    .groups = panels.groups,
                    .unroll = panels.unroll,
                    .inner = left.shape.back().constant(),
                    .left = left.dtype,
                    .dtype = frame_.type(op.results[0]).dtype,
                    .weights = panels.weights,
                    .plain_type = panels.weights,
                    .layout = {.k = left.shape.back().constant(),
                               .n = frame_.type(op.results[0]).shape.back().constant() / panels.groups,
                               .groups = panels.groups,
                               .unroll = panels.unroll,
                               .ld = 0,
                               .transposed = 0},
                    .tile = nullptr,
                    .entry = frame_.address(op.operands[1]),
                    .plain = llvm::ConstantPointerNull::get(b_.getPtrTy())};
    has_bytes_ = has_bytes_ || product.weights == DType::kI8;
    const int64_t rows = std::max(stage_.tile_rows, runtime::kRowsOfTiles);
    product.tile = frame_.stack(memory_type(b_, product.dtype), rows * lanes);
    if (const Op* pack = planning::pack_that_may_be_left_out(frame_.schedule, op.operands[1])) {
      const planning::PackSource from = planning::source_of(frame_.schedule, *pack);
      product.plain_type = frame_.type(from.root).dtype;
      product.plain = b_.CreateConstGEP1_64(b_.getInt8Ty(), frame_.address(from.root),
                                            static_cast<uint64_t>(from.skip * size_of(product.plain_type)));
      product.layout.ld = from.ld;
      product.layout.transposed = pack->attr_or<bool>("transpose_b", false) ? 1 : 0;
      product.may_be_left_out = true;
    }
    products_.emplace(op.results[0], product);
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

  // ---- groups of rows, reduced column by column

  /// How many vectors of a row are reduced side by side, in registers: for few and cheap ops more, since each waits for
  /// its sum of the row before.
  int64_t vectors_at_once() const {
    if (!stage_.domain.back().is_constant()) return 1;
    int64_t vectors = !planning::is_dear(stage_) && std::ssize(stage_.ops) <= 4 ? 4 : 2;
    while (stage_.domain.back().constant() % (vectors * stage_.lanes) != 0 && vectors > 1) vectors /= 2;
    return vectors;
  }

  void emit_groups(Value* first, Value* last) {
    const UnitRange columns = column_range(frame_, stage_);
    Value* rows = frame_.i64(stage_.row_group);
    const int64_t vectors = vectors_at_once();
    frame_.loop(b_.CreateUDiv(first, rows), b_.CreateUDiv(last, rows), 1, [&](Value* group) {
      frame_.loop(columns.first, columns.last, vectors * stage_.lanes,
                  [&](Value* column) { emit_group(group, column, vectors); });
    });
  }

  /// Reduces a group's rows at these vectors, and stores the results.
  void emit_group(Value* group, Value* column, int64_t vectors) {
    std::vector<const Op*> reductions;
    std::ranges::copy_if(stage_.ops, std::back_inserter(reductions), [](const Op* op) { return is_reduction(*op); });
    auto at_vector = [&](int64_t i) { return b_.CreateAdd(column, frame_.i64(i * stage_.lanes)); };
    std::vector<Value*> totals;
    for (int64_t i = 0; i < vectors; ++i)
      for (const Op* op : reductions) totals.push_back(neutral(*op));
    auto add_row = [&](Value* within, const std::vector<Value*>& so_far) {
      elements_.at_row_of_group(group, within);
      std::vector<Value*> next;
      for (int64_t i = 0; i < vectors; ++i) {
        for (size_t k = 0; k < reductions.size(); ++k) sums_[reductions[k]] = so_far[next.size() + k];
        emit_element(at_vector(i));
        for (const Op* op : reductions) next.push_back(sums_[op]);
      }
      return next;
    };
    totals = frame_.loop(frame_.i64(0), frame_.i64(stage_.row_group), 1, totals, add_row);
    Value* skipped = b_.CreateMul(group, frame_.size(stage_.domain.back()));
    for (size_t k = 0; k < totals.size(); ++k) {
      const Op& op = *reductions[k % reductions.size()];
      const DType dtype = frame_.type(op.results[0]).dtype;
      elements_.at_column(at_vector(static_cast<int64_t>(k / reductions.size())));
      for (Value* target : frame_.targets.at(op.results[0]))
        elements_.columns().store(frame_.offset(target, skipped, size_of(dtype)), totals[k], dtype);
    }
  }

  Value* neutral(const Op& op) {
    DType dtype = frame_.type(op.results[0]).dtype;
    llvm::Type* type = vector_of(register_type(b_, dtype), stage_.lanes);
    if (ir::is_sum(op.code)) return llvm::Constant::getNullValue(type);
    if (is_floating(dtype)) return llvm::ConstantFP::getInfinity(type, true);
    if (dtype == DType::kBool) return llvm::Constant::getNullValue(type);
    return llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(static_cast<unsigned>(8 * size_of(dtype))));
  }

  Value* combine(const Op& op, Value* x, Value* y) {
    bool real = x->getType()->isFPOrFPVectorTy();
    if (ir::is_sum(op.code)) {
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

  /// Calls the runtime's loop over panels and blocks of rows.
  void emit_panels(Value* first, Value* last, bool alone) {
    llvm::Type *pointer = b_.getPtrTy(), *integer = b_.getInt64Ty();
    Value *steps = frame_.i64(1), *apart = frame_.i64(0);  // rows from step to step
    if (alone && stage_.domain.size() > 2) {
      steps = b_.CreateSub(frame_.last_step, frame_.first_step);
      apart = frame_.size(ir::element_count({stage_.domain.begin() + 1, stage_.domain.end() - 1}));
      Value* skipped = b_.CreateMul(frame_.first_step, apart);
      first = b_.CreateAdd(first, skipped);
      last = b_.CreateAdd(last, skipped);
    }

    const Frame::Outlined epilogue = frame_.outline("epilogue", 4, [&](const std::vector<Value*>& at) {
      frame_.loop(frame_.i64(0), at[1], 1, [&](Value* j) {
        Value* tile_row = b_.CreateMul(j, at[3]);
        frame_.loop(frame_.i64(0), at[3], 1, [&](Value* i) {
          emit_epilogue(b_.CreateAdd(at[0], j), b_.CreateAdd(at[2], i), b_.CreateAdd(tile_row, i));
        });
      });
    });
    const Frame::Outlined prefetch = outline_prefetch();
    Value* functions = store_fields({epilogue.function, epilogue.closure, prefetch.function, prefetch.closure});
    Value* operands = store_operands(first);
    std::vector<llvm::Type*> types(3, pointer);
    types.resize(10, integer);
    Value* backwards = frame_.backwards ? b_.CreateZExt(frame_.backwards, integer) : frame_.i64(0);
    b_.CreateCall(
        frame_.runtime_function("weft_panels", llvm::FunctionType::get(b_.getVoidTy(), types, false)),
        {stage_constants(alone), operands, functions, first, last, steps, apart, frame_.unit, frame_.units, backwards});
  }

  /// Values of 8 bytes, one after the other in memory of the function.
  Value* store_fields(const std::vector<Value*>& fields) {
    Value* memory = frame_.stack(b_.getInt64Ty(), std::ssize(fields));
    for (size_t i = 0; i < fields.size(); ++i) frame_.keep(fields[i], frame_.stack_field(memory, i));
    return memory;
  }

  /// runtime::PanelOperands of all products. Rows of their left operands are `lda` elements apart.
  Value* store_operands(Value* first) {
    std::vector<Value*> fields;
    for (const auto& [value, product] : products_) {
      const ir::Shape& shape = frame_.type(product.op->operands[0]).shape;
      const planning::View left = planning::resolve(frame_.schedule, product.op->operands[0], shape);
      RowIndex index(frame_, shape, first);
      const ir::Shape& root = frame_.type(left.root).shape;
      fields.push_back(frame_.offset(frame_.address(left.root), index.elements(left), size_of(product.left)));
      fields.push_back(root.size() > 1 ? frame_.size(root.back()) : frame_.i64(0));
      fields.insert(fields.end(), {product.entry, product.plain, product.tile});
      fields.push_back(llvm::ConstantPointerNull::get(b_.getPtrTy()));
    }
    static_assert(sizeof(runtime::PanelOperands) == 6 * sizeof(int64_t));
    return store_fields(fields);
  }

  /// runtime::PanelStage.
  llvm::Constant* stage_constants(bool alone) {
    static_assert(sizeof(runtime::PanelProduct) == 13 * sizeof(int64_t));
    static_assert(sizeof(runtime::PanelStage) == 10 * sizeof(int64_t));
    std::vector<llvm::Constant*> of_products;
    const int64_t units = ceil_div(stage_.domain.back().constant(), stage_.lanes);
    int64_t longest = 1, weights = 0;
    for (const auto& [value, product] : products_) {
      add_constants(of_products, product);
      longest = std::max(longest, product.inner * size_of(product.left));
      weights += product.panel_bytes() * ceil_div(units, product.unroll);
    }
    const int64_t fit = std::max<int64_t>(1, chunk_bytes() / longest / stage_.tile_rows);
    const bool streams = weights > runtime::private_cache_bytes() / 4 * 3;
    return frame_.constants(
        {constant(has_bytes_ ? runtime::kFewRows : stage_.tile_rows), constant(alone ? fit * stage_.tile_rows : 0),
         constant(units), constant(ceil_div(units, stage_.unroll)), constant(stage_.unroll),
         constant(planning::splits_columns(stage_) ? planning::column_grain(stage_) : 0), constant(streams ? 1 : 0),
         constant(has_bytes_ ? 1 : 0), constant(std::ssize(products_)), frame_.constants(of_products)});
  }

  /// runtime::PanelProduct.
  void add_constants(std::vector<llvm::Constant*>& fields, const Product& product) {
    const runtime::ProductLayout& layout = product.layout;
    for (int64_t each : {layout.k, layout.n, layout.groups, layout.unroll, layout.ld, layout.transposed,
                         size_of(product.left), product.panel_bytes()})
      fields.push_back(constant(each));
    llvm::Constant* null = llvm::ConstantPointerNull::get(b_.getPtrTy());
    const bool is_bytes = product.weights == DType::kI8;
    llvm::Constant* kernel = runtime_address(product.kernel());
    fields.push_back(is_bytes ? null : kernel);
    fields.push_back(is_bytes ? kernel : null);
    fields.push_back(constant(product.unroll * stage_.lanes));
    const std::string on_the_way = fmt::format("weft_on_the_way_{}", name_of(product.plain_type));
    fields.push_back(product.may_be_left_out ? runtime_address(on_the_way) : null);
    fields.push_back(constant(product.may_be_left_out && product.plain_type == DType::kI8 ? 1 : 0));
  }

  llvm::Constant* constant(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }

  /// The address of a function. The runtime calls it, not the emitted code, so any type will do here.
  llvm::Constant* runtime_address(const std::string& name) {
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), false);
    return llvm::cast<llvm::Constant>(frame_.runtime_function(name, type).getCallee());
  }

  /// A function that prefetches the operands of the ops after a block's products, where the processor's own prefetcher
  /// doesn't: the products take long enough for the data to come from memory. (LSTM B257 T10 H422 on Zen 4: 54 ms
  /// without, 46 with it. With H416, whose rows are whole cache lines, it changed nothing.)
  Frame::Outlined outline_prefetch() {
    const std::vector<planning::View> views = elements_.astride_lines();
    const bool is_long = std::ranges::any_of(products_, [](auto& each) { return each.second.inner >= kLongProduct; });
    llvm::Constant* null = llvm::ConstantPointerNull::get(b_.getPtrTy());
    if (views.empty() || !is_long) return {null, null};
    return frame_.outline("prefetch", 4, [&](const std::vector<Value*>& at) {
      Value* first = b_.CreateMul(at[0], frame_.i64(stage_.unroll));
      frame_.loop(frame_.i64(0), b_.CreateMul(at[1], frame_.i64(stage_.unroll)), 1, [&](Value* unit) {
        Value* column = b_.CreateMul(b_.CreateAdd(first, unit), frame_.i64(stage_.lanes));
        frame_.loop(frame_.i64(0), at[3], 1,
                    [&](Value* i) { elements_.expect(views, b_.CreateAdd(at[2], i), column); });
      });
    });
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
    Value* units = frame_.i64(stage_.unroll);
    if (all % stage_.unroll != 0) units = frame_.minimum(b_.CreateSub(frame_.i64(all), first_unit), units);
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
      if (planning::is_stage_product(*op))
        store_product(*op);
      else if (is_reduction(*op))
        add_to_reduction(*op);
      else
        elements_.emit(*op);
    }
    elements_.finish_column();
  }

  void add_to_reduction(const Op& op) {
    Value* value = elements_.read(op.operands[0]);
    if (Value* mask = elements_.columns().mask()) value = b_.CreateSelect(mask, value, neutral(op));
    sums_[&op] = combine(op, sums_[&op], value);
  }

  Frame& frame_;
  const planning::Stage& stage_;
  llvm::IRBuilder<>& b_;
  StageElements elements_;
  std::map<ValueId, Product> products_;
  bool has_bytes_ = false;  ///< weights of 8 bits
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

void emit_rows(Frame& frame, const planning::Stage& stage, Value* first, Value* last, bool alone) {
  // A row without elements still has a sum, 0.
  if (!stage.has_reduction) last = end_of_rows(frame, stage.domain.back(), first, last);
  RowStage(frame, stage).emit(first, last, alone);
}

}  // namespace weft::codegen
