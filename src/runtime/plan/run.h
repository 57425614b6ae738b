#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/target.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/stage_sizes.h"
#include "runtime/plan/window.h"
#include "runtime/threads/contention.h"
#include "runtime/threads/share.h"
#include "runtime/threads/team.h"

namespace weft::runtime {

/// One call of a program: the state that its members share.
class Run {
 public:
  /// `alone`: as far as is known no other call is under way, and nobody else uses the cores, so members may wait for
  /// each other inside stages. `share_all`: members share loops of little work too, and wait for each other even if
  /// others use the cores. `places`: the buffers that have several places, for different members.
  Run(const Plan& plan, const StageCode& code, const std::vector<StageSizes>& sizes,
      const std::vector<int64_t>& symbols, const std::vector<PlacesOfMembers>& places, const int64_t* dims, bool alone,
      bool share_all)
      : plan_(plan),
        code_(code),
        sizes_(sizes),
        symbols_(symbols),
        places_(places),
        dims_(dims),
        alone_(alone),
        share_all_(share_all) {}

  /// Runs all stages in one parallel region of the team. If some must run `outside`, there are several regions, and
  /// these stages run between them. `buffers` has an entry for each buffer of the plan; loops set the entries of their
  /// steps. Throws the first failure of a stage.
  void run(Team& team, std::span<void*> buffers);

 private:
  static constexpr uint64_t kNever = ~uint64_t{0};

  /// `position` counts the barriers between stages, and between parts of a scan, that the member has passed: the same
  /// number at the same place for all members.
  struct Member {
    void** buffers;
    int64_t thread, threads;
    SpinBarrier* barrier;  ///< null if it is alone, or runs all stages of a stage while the others wait
    uint64_t position;
    Team* team = nullptr;  ///< set for the caller between parallel regions, which it starts on this team
  };
  using Stages = std::span<const StagePlan>;

  /// The functions below return false when a failure has ended the run. All members see it after the same stage.
  bool run_stages(Stages stages, Member& member);
  bool run_stage(const StagePlan& stage, Member& member);
  /// Runs the scans that the first stage lists side by side, and the stages between them before or after the scans.
  bool run_side_by_side(Stages stages, Member& member);
  /// Runs one scan of such a group, given by its index in the group, a chunk of steps at a time. Each chunk starts when
  /// the scans that it follows have done the chunk's steps.
  void run_in_chunks(Stages stages, int64_t scan, const Member& member);
  bool run_between_regions(Stages stages, Member& caller);
  bool run_region(Stages stages, Team& team, void** buffers);
  /// Whether the stages, run once, are worth waking a team for.
  bool is_shared(Stages stages) const;
  bool run_control(const StagePlan& stage, Member& member);
  bool run_loop(const StagePlan& stage, Member& member);
  bool run_cond(const StagePlan& stage, Member& member);
  bool run_while(const StagePlan& stage, Member& member);
  bool finish_stage(Member& member);

  void run_rows(const StagePlan& stage, const Member& member);
  /// Runs the member's part of some rows of a stage. If `units` members share the columns, the part is a range of
  /// columns. With 1 it is a range of the rows, in multiples of `block` where there are many.
  void run_part(StageFunction function, const Share& rows, int64_t units, int64_t block, const Member& member) const;
  void run_scan(const StagePlan& stage, Member& member);
  /// Runs a scan whose members share its columns. If waiting costs more than sharing gains, members split the rows in
  /// the remaining steps, and in later scans of this run.
  void run_by_columns(const StagePlan& scan, Member& member);
  /// Runs the steps from `step` on of a scan whose rows the members split, a window of steps at a time where the scan
  /// has windows.
  void run_by_rows(const StagePlan& scan, int64_t step, const Member& member);
  /// Runs the windowed stages of a scan, if there are any, for its steps step..end-1. The members share the scan's
  /// columns, so all of them meet at a barrier before any reads what these stages store.
  void fill_window(const StagePlan& scan, int64_t step, int64_t end, const Member& member);
  /// The windows of a scan; none if it runs without them.
  std::span<const StagePlan::Window> windows_of(const StagePlan& scan) const;
  /// Moves the stacks of a scan's windows by so many times, since stages and steps find a stack's slice by its time.
  /// Stacks of a window that holds the times from t on are moved by -t.
  void move_stacks(const StagePlan& scan, int64_t times, void** buffers) const;
  /// Runs the windowed stages of a scan, then its steps, for the steps step..end-1 and the rows first..last-1.
  void run_window(const StagePlan& scan, int64_t first, int64_t last, int64_t step, int64_t end, const Member& member);
  void run_call(const StagePlan& stage, const Member& member);
  std::span<const int64_t> batch_sizes(const StagePlan& stage, const Member& member) const;
  /// Whether the batch sizes of a ragged scan fit the scan's sizes. Every member checks for itself, so all get the same
  /// answer.
  bool fits(const StagePlan& stage, const Member& member);
  /// Copies the member's share of a whole buffer.
  void copy(int64_t from, int64_t to, const Member& member) const;
  /// Whether other programs use the cores, judging by this member's waits. `all`: the time of the steps it ran;
  /// `waited`: the part of it spent waiting for other members; `looks`: the number of this look in the scan. Reports
  /// contention if the member alone would have been faster.
  bool should_part(Nanoseconds all, Nanoseconds waited, int64_t members, int64_t looks) const;
  /// Makes members stop waiting for each other inside stages, from this member's next barrier on.
  void part(const Member& member);
  void fail(const Member& member, const std::exception_ptr& failure);
  const StageSizes& sizes_of(const StagePlan& stage) const { return sizes_[static_cast<size_t>(stage.index)]; }
  StageFunction function_of(const StagePlan& stage) const { return code_.functions[static_cast<size_t>(stage.index)]; }

  const Plan& plan_;
  const StageCode& code_;
  const std::vector<StageSizes>& sizes_;
  const std::vector<int64_t>& symbols_;
  const std::vector<PlacesOfMembers>& places_;
  const int64_t* dims_;
  bool alone_, share_all_;
  /// How many steps a scan in chunks has done. By StagePlan::index; empty if no scan runs in chunks.
  struct alignas(target::kCacheLine) Progress {
    std::atomic<int64_t> steps{0};
  };
  std::vector<Progress> progress_;
  std::mutex mutex_;
  std::atomic<uint64_t> failed_at_{kNever};
  /// The barrier after which members don't wait for each other inside stages.
  std::atomic<uint64_t> parted_at_{kNever};
  std::exception_ptr failure_;
};

}  // namespace weft::runtime
