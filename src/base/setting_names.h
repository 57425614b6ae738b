#pragma once

#include <string>
#include <vector>

namespace weft {

/// The environment variables that the settings (base/settings.h) were read from.
const std::vector<std::string>& setting_names();

}  // namespace weft
