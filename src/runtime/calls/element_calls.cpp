// Indices, sizes, integer division.

#include <fmt/format.h>

#include <type_traits>

#include "runtime/calls/calls.h"
#include "runtime/calls/number_type.h"

namespace weft::runtime {
namespace {

/// a / b or, with `remainder`, a % b. Dividing the least number by -1 gives that number, and remainder 0.
template <typename T>
T quotient(T a, T b, bool remainder) {
  if (b == -1) return remainder ? T{0} : static_cast<T>(uint64_t{0} - static_cast<uint64_t>(a));
  return remainder ? a % b : a / b;
}

}  // namespace

bool run(const IotaCall& call, const CallContext& context, std::string&) {
  const int64_t step = call.step.evaluate(context.symbols), size = call.size.evaluate(context.symbols);
  const Share share = context.share(call.count.evaluate(context.symbols), 64);
  return with_number_type(call.dtype, [&]<typename T>(T) {
    T* out = reinterpret_cast<T*>(context.at(call.result));
    for (int64_t i = share.first; i < share.last; ++i) out[i] = static_cast<T>(i / step % size);
    return true;
  });
}

bool run(const SizeCall& call, const CallContext& context, std::string&) {
  if (context.thread != 0) return true;
  return with_number_type(call.dtype, [&]<typename T>(T) {
    *reinterpret_cast<T*>(context.at(call.result)) = static_cast<T>(call.size.evaluate(context.symbols));
    return true;
  });
}

bool run(const DivideCall& call, const CallContext& context, std::string& error) {
  const Share share = context.share(call.count.evaluate(context.symbols), 64);
  return with_number_type(call.dtype, [&]<typename T>(T) {
    if constexpr (std::is_integral_v<T>) {
      const T* left = reinterpret_cast<const T*>(context.at(call.left));
      const T* right = reinterpret_cast<const T*>(context.at(call.right));
      T* out = reinterpret_cast<T*>(context.at(call.result));
      for (int64_t i = share.first; i < share.last; ++i) {
        if (right[i] == 0) {
          error = fmt::format("{}: integer division by zero", call.remainder ? "rem" : "div");
          return false;
        }
        out[i] = quotient(left[i], right[i], call.remainder);
      }
    }
    return true;
  });
}

}  // namespace weft::runtime
