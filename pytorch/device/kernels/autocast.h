#pragma once

#include <string_view>

namespace weft::device {

/// Registers what torch.autocast("weft") does, once, with CUDA's list.
void register_autocast();

/// Makes torch.autocast("weft") follow the list of "cuda", "cpu" or "xla" from here on, in all threads. No thread may
/// be within an operation. Throws for another name.
void set_autocast_list(std::string_view name);

}  // namespace weft::device
