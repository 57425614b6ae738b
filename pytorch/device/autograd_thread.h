#pragma once

namespace weft::device {

/// Has autograd's engine run the device's part of a backward, from the first tensor of the device on. Before that the
/// engine knows of no device but the CPU: it starts no thread, and a program that never uses the device may fork after
/// a backward as it may without weft.
void serve_autograd();

/// Waits until autograd's thread for the device has nothing left to do, for at most ten seconds. It frees what a
/// backward has read after the backward has returned, and for Python's objects it takes the GIL, which ends the process
/// with std::terminate once Python is going down. The caller must not hold the GIL.
void wait_for_autograd();

/// How many devices there are for those who ask: 1 once a tensor has been made there.
int devices_in_use();

}  // namespace weft::device
