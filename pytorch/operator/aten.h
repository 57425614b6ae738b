#pragma once

// The part of ATen that most files use, as one precompiled header: it takes far longer to compile than Weft's own code.
// A header that a single file needs, as autograd.cpp needs the graph's nodes, is included there.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program.h"
