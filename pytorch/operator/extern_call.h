#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace weft::torch_operator {

/// How often extern ops called each operator of PyTorch's in this process.
std::map<std::string, int64_t> extern_calls_so_far();

}  // namespace weft::torch_operator
