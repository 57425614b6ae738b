#pragma once

namespace weft::runtime {

/// For tests (Settings::delays): now and then lets the thread wait, mostly for some microseconds, rarely for longer
/// than a time slice. Between the stages of a run it makes threads drift apart as they do on a busy machine, so that
/// what only happens to be in order on a quiet one goes wrong.
void delay();

}  // namespace weft::runtime
