#include "device/graph/places.h"

#include <mutex>

#include "base/fork.h"
#include "device/with_python.h"

namespace weft::device {
namespace {

/// The most places that are told apart. Operations at further places count as at "".
constexpr size_t kMostPlaces = 1024;

using Counts = std::map<std::string, std::map<std::string, int64_t>>;

struct Places {
  std::mutex mutex;
  Counts counts;
  size_t number = 0;
  FindPlace find_place;
  Places() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
Places& places = *new Places();

/// Where the calling thread is in its Python code.
std::string place() {
  std::string found;
  if (places.find_place) with_python([&] { found = places.find_place(); });
  return found;
}

}  // namespace

void count_run_now(const Operator& op) {
  const std::string& overload = op.schema().overload_name();
  std::string name = op.schema().name();
  if (!overload.empty()) name += "." + overload;
  std::string where = place();
  std::lock_guard lock(places.mutex);
  auto& counts = places.counts[name];
  auto found = counts.find(where);
  if (found == counts.end()) {
    if (places.number >= kMostPlaces) where.clear();
    ++places.number;
    found = counts.try_emplace(where, 0).first;
  }
  ++found->second;
}

Counts ran_at_once() {
  std::lock_guard lock(places.mutex);
  return places.counts;
}

void forget_ran_at_once() {
  Counts counts;  // freed after the lock is released
  std::lock_guard lock(places.mutex);
  counts.swap(places.counts);
  places.number = 0;
}

void set_find_place(FindPlace find_place) { places.find_place = std::move(find_place); }

}  // namespace weft::device
