// Packs weights in the order in which a step reads them, in the type in which they are stored.
#include <cstring>

#include "codegen/half.h"
#include "codegen/pointwise.h"
#include "packages/emit/dots.h"
#include "packages/emit/emitter.h"

namespace weft::packages {
namespace {

using ir::Op;
using llvm::Value;

/// The bytes of an object's table.
class Bytes {
 public:
  void add(DType dtype, double value) {
    switch (dtype) {
      case DType::kF64:
        return copy(value);
      case DType::kF32:
        return copy(static_cast<float>(value));
      case DType::kI8:
        return copy(static_cast<int8_t>(value));
      case DType::kI32:
        return copy(static_cast<int32_t>(value));
      default: {
        const interpreter::Array half = interpreter::Array::of(dtype, {}, std::vector{value});
        text_.append(reinterpret_cast<const char*>(half.bytes.data()), half.bytes.size());
      }
    }
  }
  void fill(int64_t size) { text_.resize(static_cast<size_t>(size)); }
  const std::string& text() const { return text_; }

 private:
  template <typename T>
  void copy(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    text_.append(bytes, sizeof(T));
  }

  std::string text_;
};

}  // namespace

/// The stored type of the weights of these sums, which are all of one type.
DType Emitter::stored_type(const std::vector<Sum>& sums) const {
  const DType type = dtype(sums[0].value);
  return type == DType::kF32 ? weights_.dtype() : type;
}

Emitter::Layout Emitter::layout_of(const std::vector<Sum>& sums, const std::vector<Group>& groups,
                                   const Blocks& blocks) const {
  const DType stored = stored_type(sums);
  const int64_t size = size_of(dtype(sums[0].value)), align = blocks.lanes * size;
  Layout layout;
  layout.scales = static_cast<int64_t>(sums.size()) * blocks.width() * size;
  layout.corrections = layout.scales;
  const auto columns = [&](const Group& group) { return static_cast<int64_t>(group.size()) * blocks.width(); };
  const auto first = [&](const Group& group) -> const Part& { return sums[group[0].first].parts[group[0].second]; };
  for (const Group& group : groups) layout.corrections += stored == DType::kI8 ? columns(group) * size : 0;
  int64_t at = layout.corrections;
  for (const Group& group : groups)
    at += in_bytes(first(group)) && stored_offset(target_) != 0 ? columns(group) * size : 0;
  for (const Group& group : groups) {
    const bool words = in_bytes(first(group));
    if (words) at = (at + align - 1) / align * align;
    layout.rows.push_back(at);
    at += turns(first(group)) * columns(group) * (words ? elements_in_word(target_) : size_of(stored));
  }
  layout.bytes = (at + align - 1) / align * align;
  return layout;
}

/// Whether this vector of a row of weights is interleaved with a neighbour, element by element. The first vector of a
/// pair has an even index.
bool Emitter::is_paired(DType stored, size_t vector, size_t of) const {
  return target_.pairs && stored == DType::kBF16 && (vector | 1) < of;
}

/// [block][biases, scales, corrections, then by group [k][part of the group][vector][lane]], pairs of vectors [lane][of
/// the pair], words of bytes in the order of their instruction: zeros behind the last column.
llvm::GlobalVariable* Emitter::pack(const std::vector<Sum>& sums, const std::vector<Group>& groups,
                                    const Blocks& blocks, const Layout& layout) {
  const DType type = dtype(sums[0].value), stored = stored_type(sums);
  Bytes bytes;
  const auto add_columns = [&](DType dtype, int64_t block, const auto& element) {
    for (int64_t i = 0; i < blocks.width(); ++i) {
      const int64_t column = block * blocks.width() + i;
      bytes.add(dtype, column < blocks.columns ? element(column) : 0);
    }
  };
  const auto over_parts = [&](const auto& body) {
    for (const Group& group : groups)
      for (const auto& [s, p] : group) body(sums[s].parts[p]);
  };
  for (int64_t block = 0; block < blocks.count; ++block) {
    for (const Sum& sum : sums) add_columns(type, block, [&](int64_t column) { return bias(sum, column); });
    if (stored == DType::kI8)
      over_parts([&](const Part& part) {
        add_columns(type, block,
                    [&](int64_t column) { return weights_.scale(*part.product, part.column.offset + column); });
      });
    over_parts([&](const Part& part) {
      if (in_bytes(part) && stored_offset(target_) != 0)
        add_columns(DType::kI32, block, [&](int64_t column) { return correction(part, column); });
    });
    for (size_t g = 0; g < groups.size(); ++g) {
      bytes.fill(block * layout.bytes + layout.rows[g]);
      const Part& part = sums[groups[g][0].first].parts[groups[g][0].second];
      for (int64_t k = 0; k < turns(part); ++k)
        for (const double element : row_of(sums, groups[g], blocks, block, k)) bytes.add(stored, element);
    }
    bytes.fill((block + 1) * layout.bytes);
  }
  return global(llvm::ConstantDataArray::getString(b_.getContext(), bytes.text(), false), "weights");
}

/// A row of a group's weights for a block, in the order in which its elements are stored: row k or, for products of
/// bytes, the rows of word k.
std::vector<double> Emitter::row_of(const std::vector<Sum>& sums, const Group& group, const Blocks& blocks,
                                    int64_t block, int64_t k) const {
  const size_t vectors = group.size() * blocks.vectors;
  const bool words = in_bytes(sums[group[0].first].parts[group[0].second]);
  const int64_t first_row = words ? k * elements_in_word(target_) : k;
  std::vector<double> row;
  const auto add = [&](size_t vector, unsigned lane, unsigned ahead) {
    const auto& [s, p] = group[vector / blocks.vectors];
    const Part& part = sums[s].parts[p];
    const int64_t column = block * blocks.width() + static_cast<int64_t>(vector % blocks.vectors) * blocks.lanes + lane;
    const bool is_there = column < blocks.columns && first_row + ahead < part.size;
    row.push_back(is_there ? weights_.element(*part.product, part.row + first_row + ahead, part.column.offset + column)
                           : 0);
  };
  if (words) {
    const auto order = order_of_weights(target_, blocks.lanes);
    for (size_t vector = 0; vector < vectors; ++vector)
      for (const auto& [lane, ahead] : order) add(vector, lane, ahead);
    return row;
  }
  const DType stored = stored_type(sums);
  for (size_t first = 0, count = 1; first < vectors; first += count) {
    count = is_paired(stored, first, vectors) ? 2 : 1;
    for (unsigned lane = 0; lane < blocks.lanes; ++lane)
      for (size_t i = 0; i < count; ++i) add(first + i, lane, 0);
  }
  return row;
}

/// What must be added to a column's sum, since the stored left factors have an offset.
double Emitter::correction(const Part& part, int64_t column) const {
  double total = 0;
  for (int64_t k = 0; k < part.size; ++k)
    total += weights_.element(*part.product, part.row + k, part.column.offset + column);
  return -static_cast<double>(stored_offset(target_)) * total;
}

/// The constants of a sum, added up.
double Emitter::bias(const Sum& sum, int64_t column) const {
  double total = 0;
  for (const Leaf& leaf : sum.constants) {
    std::vector<int64_t> at;
    for (const Coordinate& coordinate : leaf.place.at) at.push_back(coordinate.offset);
    if (leaf.place.lane >= 0) at[static_cast<size_t>(leaf.place.lane)] += column;
    total += step_.element(leaf.value, at);
  }
  return total;
}

/// A vector of a row of weights, which begins at an address; `of`: how many the row has.
Value* Emitter::load_vector(Value* row, int64_t offset, DType stored, size_t vector, size_t of, unsigned lanes) {
  const int64_t bytes = lanes * size_of(stored);
  const auto place = static_cast<int64_t>(vector);
  const auto at = [&](int64_t vectors) { return b_.CreateGEP(b_.getInt8Ty(), row, number(offset + vectors * bytes)); };
  if (!is_paired(stored, vector, of)) return load_weights(at(place), stored, lanes, bytes);
  // Each 32 bits hold two bf16. As f32, the lower one is shifted up and the higher one masked.
  auto* type = llvm::FixedVectorType::get(b_.getInt32Ty(), lanes);
  Value* both = b_.CreateAlignedLoad(type, at(place / 2 * 2), llvm::Align(static_cast<uint64_t>(bytes)));
  Value* wide = vector % 2 == 0 ? b_.CreateShl(both, llvm::ConstantInt::get(type, 16))
                                : b_.CreateAnd(both, llvm::ConstantInt::get(type, 0xffff0000));
  return repeated(b_.CreateBitCast(wide, llvm::FixedVectorType::get(b_.getFloatTy(), lanes)));
}

/// A vector of weights in registers: as f32, or as f64 if they are f64. int8 weights become whole numbers, not yet
/// scaled. `align`: bytes.
Value* Emitter::load_weights(Value* address, DType stored, unsigned lanes, int64_t align) {
  const bool bytes = stored == DType::kI8;
  auto* type = llvm::FixedVectorType::get(bytes ? b_.getInt8Ty() : codegen::memory_type(b_, stored), lanes);
  Value* loaded = b_.CreateAlignedLoad(type, address, llvm::Align(static_cast<uint64_t>(align)));
  if (bytes) {
    Value* wide = b_.CreateSExt(loaded, llvm::FixedVectorType::get(b_.getInt32Ty(), lanes));
    return repeated(b_.CreateSIToFP(wide, llvm::FixedVectorType::get(b_.getFloatTy(), lanes)));
  }
  return repeated(is_half(stored) ? codegen::emit_from_half(b_, loaded, stored) : loaded);
}

/// Weights of one row, for columns of a product's result that belong to no block. int8 weights are multiplied by their
/// scales.
Value* Emitter::get_weights(const Part& part, const Coordinate& row, const Place& place) {
  Value* weights = get_stored(part, row, place);
  const bool is_scaled = dtype(part.product->results[0]) == DType::kF32 && weights_.dtype() == DType::kI8;
  return is_scaled ? b_.CreateFMul(weights, get_scales(part, place)) : weights;
}

/// The same without the scales.
Value* Emitter::get_stored(const Part& part, const Coordinate& row, const Place& place) {
  const Op& product = *part.product;
  const bool transposed = product.attr_or<bool>("transpose_b", false);
  const Place at{transposed ? std::vector{part.column, row} : std::vector{row, part.column},
                 place.lane < 0 ? -1 : (transposed ? 0 : 1), place.lanes};
  if (dtype(product.results[0]) != DType::kF32 || weights_.dtype() == DType::kF32) return get(product.operands[1], at);
  const interpreter::Array elements = weights_.elements(product);
  return load_from(table(elements), elements, at);
}

Value* Emitter::get_scales(const Part& part, const Place& place) {
  const interpreter::Array scales = weights_.scales(*part.product);
  return load_from(table(scales), scales, {{part.column}, place.lane < 0 ? -1 : 0, place.lanes});
}

}  // namespace weft::packages
