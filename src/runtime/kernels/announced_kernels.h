#pragma once

// The kernels of a build for ThreadSanitizer. Each announces the memory that it is about to read and write, then calls
// the kernel of the table. The kernels themselves are not instrumented, since the compiler's pass leaves out vectors
// wider than 16 bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/thread_sanitizer.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/pack_entry.h"

namespace weft::runtime {

inline constexpr int64_t kLanesF32 = target::lanes(DType::kF32), kLanesF64 = target::lanes(DType::kF64);

/// A rectangle of a row-major matrix: `rows` rows and `columns` columns of `size` bytes, `ld` elements between rows.
struct Rectangle {
  const void* data;
  int64_t rows, columns, ld, size;

  /// The rectangle that starts at (row, column) of the matrix at `data`.
  static Rectangle part(const void* data, int64_t ld, int64_t size, int64_t row, int64_t rows, int64_t column,
                        int64_t columns) {
    return {static_cast<const char*>(data) + (row * ld + column) * size, rows, columns, ld, size};
  }

  void read() const {
    if (ld == columns || columns == 0) return announce_read(data, rows * columns * size);
    for (int64_t r = 0; r < rows; ++r) announce_read(static_cast<const char*>(data) + r * ld * size, columns * size);
  }
  void write() const {
    char* to = static_cast<char*>(const_cast<void*>(data));
    if (ld == columns || columns == 0) return announce_write(to, rows * columns * size);
    for (int64_t r = 0; r < rows; ++r) announce_write(to + r * ld * size, columns * size);
  }
};

/// `a_size`: bytes of an element of a; `steps`: rows of a panel.
inline void announce_panels(int64_t vectors, int64_t a_size, int64_t c_size, int64_t steps, int64_t rows, int64_t k,
                            const void* a, int64_t lda, const void* panels, int64_t count, void* c, int64_t ldc,
                            int64_t c_step) {
  const int64_t width = vectors * target::kUnit;
  Rectangle{a, rows, k, lda, a_size}.read();
  announce_read(panels, count * steps * width);
  for (int64_t p = 0; p < count; ++p)
    Rectangle{static_cast<char*>(c) + p * c_step * c_size, rows, width / c_size, ldc, c_size}.write();
}

/// `size`: bytes of an element of the source; `steps`: rows of a panel.
inline void announce_pack(const PackArgs& args, int64_t size, int64_t steps, int64_t first, int64_t last) {
  const int64_t width = args.groups * args.unroll * target::kUnit;
  announce_write(static_cast<char*>(args.destination) + first * steps * width, (last - first) * steps * width);
  for (int64_t group = 0; group < args.groups; ++group)
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t lanes = args.unroll * (size == 8 ? kLanesF64 : kLanesF32);
      const int64_t begin = std::min(args.n, panel * lanes), end = std::min(args.n, begin + lanes);
      const int64_t column = group * args.n + begin, columns = end - begin;
      if (args.transposed)
        Rectangle::part(args.source, args.ld, size, column, columns, 0, args.k).read();
      else
        Rectangle::part(args.source, args.ld, size, 0, args.k, column, columns).read();
    }
}

/// `weight_size`: bytes of a weight; `steps`: rows of a panel.
inline void announce_product(int64_t vectors, int64_t a_size, int64_t weight_size, int64_t c_size, int64_t steps,
                             int64_t rows, const void* a, int64_t lda, const void* panels, const void* weights,
                             int64_t first, int64_t count, void* c, const ProductLayout& layout) {
  const int64_t width = vectors * target::kUnit, lanes = layout.unroll * (c_size == 8 ? kLanesF64 : kLanesF32);
  if (panels)
    return announce_panels(vectors, a_size, c_size, steps, rows, layout.k, a, lda,
                           static_cast<const char*>(panels) + first * steps * width, count, c, width / c_size,
                           rows * width / c_size);
  Rectangle{a, rows, layout.k, lda, a_size}.read();
  for (int64_t group = 0; group < layout.groups; ++group) {
    const int64_t begin = std::min(layout.n, first * lanes), end = std::min(layout.n, (first + count) * lanes);
    const int64_t column = group * layout.n + begin, columns = end - begin;
    if (layout.transposed)
      Rectangle::part(weights, layout.ld, weight_size, column, columns, 0, layout.k).read();
    else
      Rectangle::part(weights, layout.ld, weight_size, 0, layout.k, column, columns).read();
  }
  for (int64_t p = 0; p < count; ++p)
    Rectangle{static_cast<char*>(c) + p * rows * width, rows, width / c_size, width / c_size, c_size}.write();
}

/// As announce_product; nothing is written where the panels are packed already.
inline void announce_on_the_way(const void* entry, const void* weights, int64_t first, int64_t count,
                                const ProductLayout& layout, int64_t size, int64_t steps) {
  if (!is_on_the_way(entry)) return;
  announce_pack(packing_on_the_way(entry, weights, first, layout, steps * target::kUnit), size, steps, first,
                first + count);
}

inline void announce_outer(const OuterArgs& args, int64_t size, int64_t c_size, int64_t m0, int64_t m1, int64_t n0,
                           int64_t n1) {
  Rectangle::part(args.a, args.lda, size, 0, args.rows, m0, m1 - m0).read();
  Rectangle::part(args.b, args.ldb, size, 0, args.rows, n0, n1 - n0).read();
  Rectangle::part(args.c, args.ldc, c_size, m0, m1 - m0, n0, n1 - n0).write();
}

/// The kernels of `kTable`, whose elements are T.
template <const DTypeKernels& kTable, typename T>
struct AnnouncedKernels {
  static constexpr int64_t kSize = sizeof(T);

  template <size_t kVectors>
  static void tile(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panel, void* c, int64_t ldc,
                   int64_t accumulate) {
    announce_panels(kVectors, kSize, kSize, k, rows, k, a, lda, panel, 1, c, ldc, 0);
    kTable.tile[kVectors](rows, k, a, lda, panel, c, ldc, accumulate);
  }

  template <size_t kVectors>
  static void panels(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panels, int64_t count, void* c,
                     int64_t ldc, int64_t c_step, int64_t accumulate) {
    announce_panels(kVectors, kSize, kSize, k, rows, k, a, lda, panels, count, c, ldc, c_step);
    kTable.tile_panels[kVectors](rows, k, a, lda, panels, count, c, ldc, c_step, accumulate);
  }

  template <size_t kVectors>
  static void product(int64_t rows, const void* a, int64_t lda, const void* panels, const void* weights, int64_t first,
                      int64_t count, void* c, const ProductLayout* layout, const void* ahead, int64_t lines) {
    announce_product(kVectors, kSize, kSize, kSize, layout->k, rows, a, lda, panels, weights, first, count, c, *layout);
    kTable.product[kVectors](rows, a, lda, panels, weights, first, count, c, layout, ahead, lines);
  }

  static void pack(const PackArgs& args, int64_t first, int64_t last) {
    announce_pack(args, kSize, args.k, first, last);
    kTable.pack(args, first, last);
  }

  static const void* on_the_way(const void* entry, const void* weights, int64_t first, int64_t count,
                                const ProductLayout* layout) {
    announce_on_the_way(entry, weights, first, count, *layout, kSize, layout->k);
    return kTable.on_the_way(entry, weights, first, count, layout);
  }

  static void outer(const OuterArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void* scratch) {
    announce_outer(args, kSize, kSize, m0, m1, n0, n1);
    kTable.outer(args, m0, m1, n0, n1, scratch);
  }

  static void column_sum(const void* a, int64_t rows, int64_t lda, void* out, int64_t c0, int64_t c1) {
    Rectangle::part(a, lda, kSize, 0, rows, c0, c1 - c0).read();
    Rectangle::part(out, 0, kSize, 0, 1, c0, c1 - c0).write();
    kTable.column_sum(a, rows, lda, out, c0, c1);
  }

  static void gemm(const GemmArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void* scratch) {
    if (args.transpose_a)
      Rectangle::part(args.a, args.lda, kSize, 0, args.k, m0, m1 - m0).read();
    else
      Rectangle::part(args.a, args.lda, kSize, m0, m1 - m0, 0, args.k).read();
    if (args.transpose_b)
      Rectangle::part(args.b, args.ldb, kSize, n0, n1 - n0, 0, args.k).read();
    else
      Rectangle::part(args.b, args.ldb, kSize, 0, args.k, n0, n1 - n0).read();
    Rectangle::part(args.c, args.ldc, kSize, m0, m1 - m0, n0, n1 - n0).write();
    kTable.gemm(args, m0, m1, n0, n1, scratch);
  }

  static DTypeKernels make() {
    DTypeKernels all = kTable;
    const TileKernel tiles[] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>};
    const PanelsKernel of_panels[] = {nullptr, panels<1>, panels<2>, panels<3>, panels<4>};
    std::ranges::copy(tiles, all.tile);
    std::ranges::copy(of_panels, all.tile_panels);
    const ProductKernel products[] = {nullptr, product<1>, product<2>, product<3>, product<4>};
    std::ranges::copy(products, all.product);
    all.pack = pack;
    all.on_the_way = on_the_way;
    all.outer = outer;
    all.column_sum = column_sum;
    all.gemm = gemm;
    return all;
  }
  static inline const DTypeKernels kAnnounced = make();
};

/// `kSize`: the bytes of a weight.
template <const WidenedKernels& kTable, int64_t kSize>
struct AnnouncedWidened {
  template <size_t kVectors>
  static void product(int64_t rows, const void* a, int64_t lda, const void* panels, const void* weights, int64_t first,
                      int64_t count, void* c, const ProductLayout* layout, const void* ahead, int64_t lines) {
    announce_product(kVectors, 4, kSize, 4, layout->k, rows, a, lda, panels, weights, first, count, c, *layout);
    kTable.product[kVectors](rows, a, lda, panels, weights, first, count, c, layout, ahead, lines);
  }

  static void pack(const PackArgs& args, int64_t first, int64_t last) {
    announce_pack(args, kSize, args.k, first, last);
    kTable.pack(args, first, last);
  }

  static const void* on_the_way(const void* entry, const void* weights, int64_t first, int64_t count,
                                const ProductLayout* layout) {
    announce_on_the_way(entry, weights, first, count, *layout, kSize, layout->k);
    return kTable.on_the_way(entry, weights, first, count, layout);
  }

  static WidenedKernels make() {
    WidenedKernels made = kTable;
    const ProductKernel products[] = {nullptr, product<1>, product<2>, product<3>, product<4>};
    std::ranges::copy(products, made.product);
    made.pack = pack;
    made.on_the_way = on_the_way;
    return made;
  }
  static inline const WidenedKernels kAnnounced = make();
};

template <const F16OuterKernels& kTable>
struct AnnouncedF16Outer {
  static void outer(const OuterArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void* scratch) {
    announce_outer(args, 4, 2, m0, m1, n0, n1);
    kTable.outer(args, m0, m1, n0, n1, scratch);
  }

  static F16OuterKernels make() {
    F16OuterKernels made = kTable;
    made.outer = outer;
    return made;
  }
  static inline const F16OuterKernels kAnnounced = make();
};

template <const FoldKernels& kTable>
struct AnnouncedFolds {
  /// `kPlace`: the index of the dtype in FoldKernels.
  template <bool kSum, size_t kPlace>
  static void fold(const void* x, int64_t rows, int64_t ld, void* out, int64_t columns) {
    constexpr int64_t kSize = kPlace % 2 == 0 ? 4 : 8;
    Rectangle{x, rows, columns, ld, kSize}.read();
    announce_write(out, columns * kSize);
    (kSum ? kTable.sum : kTable.max)[kPlace](x, rows, ld, out, columns);
  }

  static constexpr FoldKernels kAnnounced{{fold<true, 0>, fold<true, 1>, fold<true, 2>, fold<true, 3>},
                                          {fold<false, 0>, fold<false, 1>, fold<false, 2>, fold<false, 3>}};
};

template <const PairKernels& kTable>
struct AnnouncedPairs {
  template <bool kHalf, size_t kVectors>
  static void panels(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panels, int64_t count, void* c,
                     int64_t ldc, int64_t c_step, int64_t accumulate) {
    announce_panels(kVectors, kHalf ? 2 : 4, 4, (k + 1) / 2, rows, k, a, lda, panels, count, c, ldc, c_step);
    (kHalf ? kTable.bf16 : kTable.f32)[kVectors](rows, k, a, lda, panels, count, c, ldc, c_step, accumulate);
  }

  template <bool kHalf, size_t kVectors>
  static void product(int64_t rows, const void* a, int64_t lda, const void* panels, const void* weights, int64_t first,
                      int64_t count, void* c, const ProductLayout* layout, const void* ahead, int64_t lines) {
    announce_product(kVectors, kHalf ? 2 : 4, 2, 4, (layout->k + 1) / 2, rows, a, lda, panels, weights, first, count, c,
                     *layout);
    (kHalf ? kTable.product_bf16 : kTable.product_f32)[kVectors](rows, a, lda, panels, weights, first, count, c, layout,
                                                                 ahead, lines);
  }

  static void pack(const PackArgs& args, int64_t first, int64_t last) {
    announce_pack(args, 2, (args.k + 1) / 2, first, last);
    kTable.pack(args, first, last);
  }

  static const void* on_the_way(const void* entry, const void* weights, int64_t first, int64_t count,
                                const ProductLayout* layout) {
    announce_on_the_way(entry, weights, first, count, *layout, 2, (layout->k + 1) / 2);
    return kTable.on_the_way(entry, weights, first, count, layout);
  }

  static void outer(const OuterArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void* scratch) {
    announce_outer(args, 2, 2, m0, m1, n0, n1);
    kTable.outer(args, m0, m1, n0, n1, scratch);
  }

  static void column_sum(const void* a, int64_t rows, int64_t lda, void* out, int64_t c0, int64_t c1) {
    Rectangle::part(a, lda, 2, 0, rows, c0, c1 - c0).read();
    announce_write(static_cast<char*>(out) + c0 * 2, (c1 - c0) * 2);
    kTable.column_sum(a, rows, lda, out, c0, c1);
  }

  static PairKernels make() {
    PairKernels made = kTable;
    set<1>(made);
    set<2>(made);
    set<3>(made);
    set<4>(made);
    made.pack = pack;
    made.on_the_way = on_the_way;
    made.column_sum = column_sum;
    made.outer = outer;
    return made;
  }

  template <size_t kVectors>
  static void set(PairKernels& made) {
    static_assert(target::kMaxPanelUnits == 4);
    made.f32[kVectors] = panels<false, kVectors>;
    made.bf16[kVectors] = panels<true, kVectors>;
    made.product_f32[kVectors] = product<false, kVectors>;
    made.product_bf16[kVectors] = product<true, kVectors>;
  }

  static inline const PairKernels kAnnounced = make();  // sizes of the table are no constants here
};

template <const ByteRowsKernels& kTable>
struct AnnouncedByteRows {
  template <bool kReal>
  static void rows(int64_t rows, int64_t k, const void* a, int64_t lda, const void* weights, int64_t n, int64_t groups,
                   int64_t width, int64_t panel, int64_t count, void* c, int64_t c_step) {
    Rectangle{a, rows, k, lda, 4}.read();
    const int64_t first = panel * width, last = std::min(n, (panel + count) * width);
    for (int64_t group = 0; group < groups; ++group)
      Rectangle::part(weights, k, 1, group * n + first, last - first, 0, k).read();
    for (int64_t p = 0; p < count; ++p)
      Rectangle{static_cast<char*>(c) + p * c_step * 4, rows, groups * width, groups * width, 4}.write();
    (kReal ? kTable.f32 : kTable.i32)(rows, k, a, lda, weights, n, groups, width, panel, count, c, c_step);
  }

  static constexpr ByteRowsKernels kAnnounced{.f32 = rows<true>, .i32 = rows<false>};
};

}  // namespace weft::runtime
