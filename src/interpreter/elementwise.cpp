#include <algorithm>
#include <cmath>

#include "interpreter/evaluator.h"
#include "interpreter/kernels.h"
#include "interpreter/numeric.h"

// Sources and elementwise ops. Functions of floating types are computed in the compute type by the C++ library, so
// within 1 ulp in f32.

namespace weft::interpreter {
namespace {

template <typename T, typename F>
void map1(const Call& call, F f) {
  const T* a = call.in<T>(0);
  T* out = call.out<T>();
  for (int64_t i = 0, n = call.count(); i < n; ++i) out[i] = store<T>(static_cast<Compute<T>>(f(load(a[i]))));
}

template <typename T, typename Result, typename F>
void map2(const Call& call, F f) {
  const T* a = call.in<T>(0);
  const T* b = call.in<T>(1);
  auto* out = call.out<Result>();
  for (int64_t i = 0, n = call.count(); i < n; ++i)
    out[i] = store<Result>(static_cast<Compute<Result>>(f(load(a[i]), load(b[i]))));
}

template <typename F>
void numbers1(const Call& call, F f) {
  dispatch_number(call.operands[0].dtype, [&]<typename T>(Tag<T>) { map1<T>(call, f); });
}

template <typename F>
void floats1(const Call& call, F f) {
  dispatch_floating(call.operands[0].dtype, [&]<typename T>(Tag<T>) { map1<T>(call, f); });
}

template <typename F>
void numbers2(const Call& call, F f) {
  dispatch_number(call.operands[0].dtype, [&]<typename T>(Tag<T>) { map2<T, T>(call, f); });
}

template <typename F>
void compare(const Call& call, F f) {
  dispatch_any(call.operands[0].dtype, [&]<typename T>(Tag<T>) { map2<T, Bool8>(call, f); });
}

/// Integer arithmetic that wraps: computed in unsigned 64 bits, where overflow is defined, and truncated to the type.
template <typename C, typename F>
C wrapping(C a, C b, F f) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  else
    return f(a, b);
}

template <typename C>
C divide(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    check(b != 0, "div: integer division by zero");
    if constexpr (std::is_signed_v<C>)
      if (b == -1) return static_cast<C>(uint64_t{0} - static_cast<uint64_t>(a));
    return static_cast<C>(a / b);
  } else {
    return a / b;
  }
}

template <typename C>
C remainder_of(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    check(b != 0, "rem: integer division by zero");
    if constexpr (std::is_signed_v<C>)
      if (b == -1) return 0;
    return static_cast<C>(a % b);
  } else {
    return std::fmod(a, b);
  }
}

/// On bool, or on the bits of integers.
template <typename F>
void logical2(const Call& call, F f) {
  if (call.operands[0].dtype == DType::kBool) return map2<Bool8, Bool8>(call, f);
  dispatch_integer(call.operands[0].dtype, [&]<typename T>(Tag<T>) { map2<T, T>(call, f); });
}

}  // namespace

namespace kernels {

void constant(const Call& call) {
  auto value = call.op.attr<double>("value");
  dispatch_any(call.results[0].dtype, [&]<typename T>(Tag<T>) {
    std::fill_n(call.out<T>(), call.count(), store<T>(convert<Compute<T>>(value)));
  });
}

void iota(const Call& call) {
  auto dim = static_cast<size_t>(call.op.attr<int64_t>("dim"));
  auto sizes = call.results[0].sizes;
  int64_t inner = count_of(sizes.subspan(dim + 1));
  dispatch_number(call.results[0].dtype, [&]<typename T>(Tag<T>) {
    T* out = call.out<T>();
    for (int64_t i = 0, n = call.count(); i < n; ++i)
      out[i] = store<T>(static_cast<Compute<T>>(i / inner % sizes[dim]));
  });
}

void size(const Call& call) {
  int64_t size = call.evaluator.value_of(call.op.attr<ir::Dim>("of"));
  dispatch_number(call.results[0].dtype,
                  [&]<typename T>(Tag<T>) { *call.out<T>() = store<T>(convert<Compute<T>>(size)); });
}

void copy(const Call& call) {
  dispatch_any(call.operands[0].dtype,
               [&]<typename T>(Tag<T>) { std::copy_n(call.in<T>(0), call.count(), call.out<T>()); });
}

void neg(const Call& call) {
  numbers1(call, []<typename C>(C x) {
    if constexpr (std::is_integral_v<C>)
      return static_cast<C>(uint64_t{0} - static_cast<uint64_t>(x));
    else
      return -x;
  });
}

void abs(const Call& call) {
  numbers1(call, []<typename C>(C x) {
    if constexpr (std::is_integral_v<C>)
      return x < 0 ? static_cast<C>(uint64_t{0} - static_cast<uint64_t>(x)) : x;
    else
      return std::abs(x);
  });
}

void sign(const Call& call) {
  numbers1(call, []<typename C>(C x) { return static_cast<C>((x > 0) - (x < 0)); });
}

void relu(const Call& call) {
  numbers1(call, []<typename C>(C x) { return x < 0 ? C(0) : x; });
}

void exp(const Call& call) {
  floats1(call, [](auto x) { return std::exp(x); });
}
void expm1(const Call& call) {
  floats1(call, [](auto x) { return std::expm1(x); });
}
void log(const Call& call) {
  floats1(call, [](auto x) { return std::log(x); });
}
void log2(const Call& call) {
  floats1(call, [](auto x) { return std::log2(x); });
}
void log10(const Call& call) {
  floats1(call, [](auto x) { return std::log10(x); });
}
void log1p(const Call& call) {
  floats1(call, [](auto x) { return std::log1p(x); });
}
void sqrt(const Call& call) {
  floats1(call, [](auto x) { return std::sqrt(x); });
}
void rsqrt(const Call& call) {
  floats1(call, [](auto x) { return 1 / std::sqrt(x); });
}
void tanh(const Call& call) {
  floats1(call, [](auto x) { return std::tanh(x); });
}
void sigmoid(const Call& call) {
  floats1(call, [](auto x) { return 1 / (1 + std::exp(-x)); });
}
void sin(const Call& call) {
  floats1(call, [](auto x) { return std::sin(x); });
}
void cos(const Call& call) {
  floats1(call, [](auto x) { return std::cos(x); });
}
void erf(const Call& call) {
  floats1(call, [](auto x) { return std::erf(x); });
}
void erfc(const Call& call) {
  floats1(call, [](auto x) { return std::erfc(x); });
}
void floor(const Call& call) {
  floats1(call, [](auto x) { return std::floor(x); });
}

void ceil(const Call& call) {
  floats1(call, [](auto x) { return std::ceil(x); });
}
void trunc(const Call& call) {
  floats1(call, [](auto x) { return std::trunc(x); });
}
/// The library's rint would follow the caller's rounding mode.
void round(const Call& call) {
  floats1(call, []<typename C>(C x) {
    C low = std::floor(x);
    C above = x - low;
    bool up = above > C(0.5) || (above == C(0.5) && std::fmod(low, C(2)) != 0);
    return std::copysign(up ? low + 1 : low, x);
  });
}

void logical_not(const Call& call) {
  if (call.operands[0].dtype == DType::kBool) return map1<Bool8>(call, [](bool x) { return !x; });
  dispatch_integer(call.operands[0].dtype, [&]<typename T>(Tag<T>) { map1<T>(call, [](T x) { return ~x; }); });
}

void cast(const Call& call) {
  dispatch_any(call.operands[0].dtype, [&]<typename From>(Tag<From>) {
    dispatch_any(call.results[0].dtype, [&]<typename To>(Tag<To>) {
      const From* a = call.in<From>(0);
      To* out = call.out<To>();
      for (int64_t i = 0, n = call.count(); i < n; ++i) out[i] = store<To>(convert<Compute<To>>(load(a[i])));
    });
  });
}

void add(const Call& call) {
  numbers2(call, [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x + y; }); });
}
void sub(const Call& call) {
  numbers2(call, [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x - y; }); });
}
void mul(const Call& call) {
  numbers2(call, [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x * y; }); });
}
void div(const Call& call) {
  numbers2(call, [](auto a, auto b) { return divide(a, b); });
}

void rem(const Call& call) {
  numbers2(call, [](auto a, auto b) { return remainder_of(a, b); });
}

void pow(const Call& call) {
  dispatch_floating(call.operands[0].dtype,
                    [&]<typename T>(Tag<T>) { map2<T, T>(call, [](auto a, auto b) { return std::pow(a, b); }); });
}
void atan2(const Call& call) {
  dispatch_floating(call.operands[0].dtype,
                    [&]<typename T>(Tag<T>) { map2<T, T>(call, [](auto y, auto x) { return std::atan2(y, x); }); });
}

void hypot(const Call& call) {
  dispatch_floating(call.operands[0].dtype,
                    [&]<typename T>(Tag<T>) { map2<T, T>(call, [](auto a, auto b) { return std::hypot(a, b); }); });
}

void logaddexp(const Call& call) {
  dispatch_floating(call.operands[0].dtype, [&]<typename T>(Tag<T>) {
    map2<T, T>(call, [](auto a, auto b) {
      const auto apart = a == b ? decltype(a){0} : std::abs(a - b);  // the difference of equal infinities would be NaN
      return std::max(a, b) + std::log1p(std::exp(-apart));
    });
  });
}

void maximum(const Call& call) {
  numbers2(call, [](auto a, auto b) { return a != a || a > b ? a : b; });  // a NaN in b fails a > b
}
void minimum(const Call& call) {
  numbers2(call, [](auto a, auto b) { return a != a || a < b ? a : b; });
}

void eq(const Call& call) {
  compare(call, [](auto a, auto b) { return a == b; });
}
void ne(const Call& call) {
  compare(call, [](auto a, auto b) { return a != b; });
}
void lt(const Call& call) {
  compare(call, [](auto a, auto b) { return a < b; });
}
void le(const Call& call) {
  compare(call, [](auto a, auto b) { return a <= b; });
}
void gt(const Call& call) {
  compare(call, [](auto a, auto b) { return a > b; });
}
void ge(const Call& call) {
  compare(call, [](auto a, auto b) { return a >= b; });
}

void logical_and(const Call& call) {
  logical2(call, [](auto a, auto b) { return a & b; });
}
void logical_or(const Call& call) {
  logical2(call, [](auto a, auto b) { return a | b; });
}

void select(const Call& call) {
  dispatch_any(call.operands[1].dtype, [&]<typename T>(Tag<T>) {
    const auto* condition = call.in<Bool8>(0);
    const T* a = call.in<T>(1);
    const T* b = call.in<T>(2);
    T* out = call.out<T>();
    for (int64_t i = 0, n = call.count(); i < n; ++i) out[i] = load(condition[i]) ? a[i] : b[i];
  });
}

}  // namespace kernels
}  // namespace weft::interpreter
