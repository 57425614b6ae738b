#pragma once

#include "runtime/threads/team.h"

namespace weft::torch_operator {

/// Runs engine calls on the OpenMP team that ATen's own kernels use, as many threads as torch.set_num_threads says: a
/// second pool would start late, while OpenMP's workers still spin after an ATen op. Serial inside a parallel region
/// and in a forked child, whose OpenMP team did not survive the fork. Stateless: any number of calls at once.
class OpenMpTeam : public runtime::Team {
 public:
  int64_t size() const override;
  void run(const std::function<void(int64_t thread, int64_t threads)>& member) override;
};

}  // namespace weft::torch_operator
