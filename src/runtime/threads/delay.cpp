#include "runtime/threads/delay.h"

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "runtime/threads/spin.h"

namespace weft::runtime {

void delay() {
  static std::atomic<unsigned> threads{0};
  thread_local std::minstd_rand random(++threads);
  const auto draw = random();
  if (draw % 1024 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  else if (draw % 128 == 1)
    std::this_thread::yield();
  else if (draw % 8 == 2)
    spin_for([] { return false; }, static_cast<double>(draw / 8 % 16));
}

}  // namespace weft::runtime
