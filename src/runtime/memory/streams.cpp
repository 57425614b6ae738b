#include "runtime/memory/streams.h"

#include "base/settings.h"
#include "base/target.h"
#include "runtime/threads/cores.h"

extern "C" int64_t weft_streams(int64_t bytes, int64_t own, int64_t count, int64_t addresses) {
  using namespace weft;
  const int64_t wanted = settings().stream;
  if (wanted == 0 || addresses % target::kCacheLine != 0) return 0;
  if (wanted > 0) return 1;
  const int64_t cache = runtime::private_cache_bytes();
  if (own <= cache) return 0;
  return bytes > runtime::shared_cache_bytes() / 2 || (count >= 3 && own > cache / 2 * 5) ? 1 : 0;
}
