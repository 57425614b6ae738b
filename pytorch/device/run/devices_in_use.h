#pragma once

namespace weft::device {

/// How many devices PyTorch is told there are: 1 once a tensor has been made on the device.
///
/// Autograd's engine asks once, before its first backward, and starts a thread for each device that it finds. It has to
/// find none, for two reasons. Once a thread was started, the process can't fork and go on with autograd, which a
/// program that never uses the device must be able to do. And a device that is first used after the first backward
/// would have no thread. So where the device is in use, backwards run on the thread that calls them
/// (python/weft/_device/backward.py).
int devices_in_use();

/// To be called when a tensor of the device is made.
void use_device();

/// Whether a backward may reach tensors of the device: whether this process, or the process that forked it, has made
/// such tensors.
bool may_be_in_a_graph();

}  // namespace weft::device
