#pragma once

namespace weft::device {

/// Makes torch.autocast("weft") work. Called with the rest of the device's registration only: PyTorch's place for
/// autocast on a device from outside is another package's where the device itself is.
void register_autocast();

}  // namespace weft::device
