// Fourier transforms in a recording, as products by constant matrices (fourier.h), of the lengths for which these are a
// good way; others stay PyTorch's own operations. And torch.stft, of which PyTorch's own shows frames of a signal by
// places in memory.

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_fft_c2c.h>
#include <ATen/ops/_fft_c2r.h>
#include <ATen/ops/_fft_r2c.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/real.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cmath>

#include "decompose/fourier.h"
#include "record/recording.h"

namespace weft::decompose {
namespace {

/// torch.fft's normalisations, by their numbers in the operations.
enum class Norm : int64_t { kNone, kByRoot, kByLength };

const auto kFromReal = aten<Tensor(const Tensor&, at::IntArrayRef, int64_t, bool)>("aten::_fft_r2c", "");
const auto kComplex = aten<Tensor(const Tensor&, c10::SymIntArrayRef, int64_t, bool)>("aten::_fft_c2c", "");
const auto kToReal = aten<Tensor(const Tensor&, at::IntArrayRef, int64_t, c10::SymInt)>("aten::_fft_c2r", "");

/// Where PyTorch can run a transform as well, more multiply-adds than these take longer than its call does.
constexpr int64_t kMostWork = int64_t{1} << 20;

/// Whether products are a good way to transform x along these dims. `last`: the last one's length, where it is another
/// than x's own.
bool has_products(const Tensor& x, at::IntArrayRef dims, std::optional<int64_t> last = std::nullopt) {
  const at::ScalarType type = c10::toRealValueType(x.scalar_type());
  if (dims.empty() || x.dim() == 0 || !x.device().is_cpu() || x.numel() == 0) return false;
  if (type != at::kFloat && type != at::kDouble) return false;
  int64_t all = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool is_last = last.has_value() && i + 1 == dims.size();
    const auto work = fourier_work(is_last ? *last : x.size(dims[i]));
    if (!work) return false;
    all += *work * (x.numel() / x.size(dims[i]));
  }
  return all <= kMostWork || record::Recording::is_alone();
}

/// What results are multiplied by. `last`: as above.
double scale_of(const Tensor& x, at::IntArrayRef dims, int64_t norm, std::optional<int64_t> last = std::nullopt) {
  double count = 1;
  for (size_t i = 0; i < dims.size(); ++i)
    count *= static_cast<double>(last.has_value() && i + 1 == dims.size() ? *last : x.size(dims[i]));
  if (norm == static_cast<int64_t>(Norm::kByRoot)) return 1 / std::sqrt(count);
  return norm == static_cast<int64_t>(Norm::kByLength) ? 1 / count : 1;
}

/// [..., n] complex as its parts [..., 2 * n], and back.
Tensor as_parts(const Tensor& x) { return at::cat({at::real(x), at::imag(x)}, -1); }

Tensor of_parts(const Tensor& parts) {
  const Tensor both = parts.unflatten(-1, {2, parts.size(-1) / 2});
  return at::complex(both.select(-2, 0), both.select(-2, 1));
}

Tensor along(const Tensor& x, int64_t dim, double sign, double scale) {
  const int64_t n = x.size(dim);
  const Tensor parts = as_parts(x.movedim(dim, -1));
  return of_parts(Fourier{n, sign, scale, false, false, n, n}(parts)).movedim(-1, dim);
}

/// Without autocast, which would round the factors of products: PyTorch's transforms run without it, too.
struct InFull {
  c10::impl::ExcludeDispatchKeyGuard without{c10::autocast_dispatch_keyset};
};

Tensor fft_r2c(c10::DispatchKeySet keys, const Tensor& x, at::IntArrayRef dims, int64_t norm, bool onesided) {
  if (x.is_complex() || !has_products(x, dims)) return kFromReal.redispatch(below(keys), x, dims, norm, onesided);
  const InFull guard;
  const int64_t last = dims.back(), n = x.size(last);
  const Fourier transform{n, -1, scale_of(x, dims, norm), true, false, n, onesided ? n / 2 + 1 : n};
  Tensor y = of_parts(transform(x.movedim(last, -1))).movedim(-1, last);
  for (size_t i = 0; i + 1 < dims.size(); ++i) y = along(y, dims[i], -1, 1);
  return y;
}

Tensor fft_c2c(c10::DispatchKeySet keys, const Tensor& x, c10::SymIntArrayRef given, int64_t norm, bool forward) {
  const auto dims = c10::asIntArrayRefSlowOpt(given);
  if (!dims || !x.is_complex() || !has_products(x, *dims))
    return kComplex.redispatch(below(keys), x, given, norm, forward);
  const InFull guard;
  Tensor y = x;
  for (size_t i = 0; i < dims->size(); ++i)
    y = along(y, (*dims)[i], forward ? -1 : 1, i == 0 ? scale_of(x, *dims, norm) : 1);
  return y;
}

Tensor fft_c2r(c10::DispatchKeySet keys, const Tensor& x, at::IntArrayRef dims, int64_t norm, c10::SymInt size) {
  const auto known = size.maybe_as_int();
  if (!known || !x.is_complex() || !has_products(x, dims, *known) || x.size(dims.back()) < *known / 2 + 1)
    return kToReal.redispatch(below(keys), x, dims, norm, std::move(size));
  const InFull guard;
  const int64_t last = dims.back(), n = *known, half = n / 2 + 1;
  Tensor y = x;
  for (size_t i = 0; i + 1 < dims.size(); ++i) y = along(y, dims[i], 1, 1);
  Tensor parts = as_parts(y.movedim(last, -1).narrow(-1, 0, half));
  parts = parts * half_spectrum_weights(n, parts.scalar_type()).squeeze(0);
  return Fourier{n, 1, scale_of(x, dims, norm, n), false, true, half, n}(parts).movedim(-1, last);
}

// ---- torch.stft

const auto kStft =
    aten<Tensor(const Tensor&, int64_t, std::optional<int64_t>, std::optional<int64_t>, const OptionalTensor&, bool,
                c10::string_view, bool, std::optional<bool>, std::optional<bool>, std::optional<bool>)>("aten::stft",
                                                                                                        "center");

/// The window's elements as those of a frame: zeros on both sides of a shorter one.
Tensor framed(const Tensor& window, int64_t length) {
  const int64_t left = (length - window.size(0)) / 2;
  return window.size(0) == length ? window : at::constant_pad_nd(window, {left, length - window.size(0) - left});
}

/// As at::stft, but for frames by unfold(). What it would raise an error for, or is rare, goes there.
Tensor stft(c10::DispatchKeySet keys, const Tensor& x, int64_t length, std::optional<int64_t> hop_length,
            std::optional<int64_t> win_length, const OptionalTensor& given_window, bool center, c10::string_view mode,
            bool normalized, std::optional<bool> onesided, std::optional<bool> return_complex,
            std::optional<bool> align_to_window) {
  const int64_t hop = hop_length.value_or(length / 4), width = win_length.value_or(length);
  const bool has_window = given_window.has_value() && given_window->defined();
  const int64_t margin = center ? length / 2 : 0;
  const bool is_usual = (x.dim() == 1 || x.dim() == 2) && x.is_floating_point() && return_complex && !align_to_window &&
                        length > 0 && hop > 0 && width > 0 && width <= length && x.size(-1) + 2 * margin >= length &&
                        (!center || mode != "reflect" || x.size(-1) > margin);
  const bool is_usual_window = !has_window || (given_window->dim() == 1 && given_window->size(0) == width &&
                                               given_window->scalar_type() == x.scalar_type());
  if (!is_usual || !is_usual_window)
    return kStft.redispatch(below(keys), x, length, hop_length, win_length, given_window, center, mode, normalized,
                            onesided, return_complex, align_to_window);
  Tensor signal = x.dim() == 1 ? x.unsqueeze(0) : x;
  if (center) signal = at::pad(signal.unsqueeze(0), {margin, margin}, mode).squeeze(0);
  Tensor frames = signal.unfold(1, length, hop);
  if (has_window)
    frames = frames * framed(*given_window, length);
  else if (width < length)
    frames = frames * framed(at::ones({width}, x.options()), length);
  const auto norm = static_cast<int64_t>(normalized ? Norm::kByRoot : Norm::kNone);
  Tensor result = at::_fft_r2c(frames, {2}, norm, onesided.value_or(true)).transpose(1, 2);
  if (x.dim() == 1) result = result.squeeze(0);
  return *return_complex ? result : at::view_as_real(result);
}

}  // namespace
}  // namespace weft::decompose

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  using namespace weft::decompose;
  m.impl("_fft_r2c", fft_r2c);
  m.impl("_fft_c2c", fft_c2c);
  m.impl("_fft_c2r", fft_c2r);
  m.impl("stft.center", stft);
}
