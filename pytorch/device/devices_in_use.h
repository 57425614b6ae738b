#pragma once

namespace weft::device {

/// How many devices PyTorch is told there are: 1 once a tensor has been made on the device.
///
/// Autograd's engine asks once, before its first backward, and starts a thread for each device that it finds. It has to
/// find none. After a thread was started the process can't fork and go on with autograd, which a program that never
/// uses the device may do with weft as without; and a device that is used from the second backward on would have no
/// thread. So backwards run on the thread that asks for them where the device is in use
/// (python/weft/_device/backward.py).
int devices_in_use();

/// Says that a tensor of the device is being made.
void use_device();

/// Whether a backward may reach tensors of the device: this process, or the one it was forked off, has made some.
bool may_be_in_a_graph();

}  // namespace weft::device
