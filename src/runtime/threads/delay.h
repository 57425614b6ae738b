#pragma once

namespace weft::runtime {

/// For tests (Settings::delays): makes the thread wait at random, mostly for some microseconds, rarely for longer than
/// a time slice. Called between stages, it makes threads drift apart as on a busy machine, so that a missing barrier
/// shows.
void delay();

}  // namespace weft::runtime
