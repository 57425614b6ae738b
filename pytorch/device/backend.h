#pragma once

namespace weft::device {

/// Takes PyTorch's place for a device from outside (PrivateUse1), once. The caller has made sure that it is free.
void register_backend();

}  // namespace weft::device
