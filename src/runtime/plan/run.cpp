#include "runtime/plan/run.h"

#include <algorithm>
#include <cstring>

#include "base/batch_sizes.h"
#include "base/error.h"
#include "base/settings.h"
#include "base/target.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/packs.h"
#include "runtime/plan/window.h"
#include "runtime/threads/contention.h"
#include "runtime/threads/delay.h"
#include "runtime/threads/share.h"

namespace weft::runtime {
namespace {

/// The thread's share of the rows. With many rows it is a multiple of `block`. With so few that one block more or less
/// would matter, rows are split evenly.
Share rows_of(int64_t count, int64_t block, int64_t thread, int64_t threads) {
  return share_of(count, count < 4 * threads * block ? 1 : block, thread, threads);
}

/// A bool in memory: any byte but 0 is true, as to PyTorch; a C++ bool has no values but 0 and 1.
bool is_true(const void* element) { return *static_cast<const uint8_t*>(element) != 0; }

/// Sets the buffers from which a step reads carries, and those to which it stores the next carries. `bytes`: the
/// entries of StageSizes::bytes for carries.
void set_carries(const ControlPlan& loop, const int64_t* bytes, int64_t step, bool last, void** buffers) {
  for (const ControlPlan::Carry& carry : loop.carries) {
    buffers[carry.arg] = step == 0 ? buffers[carry.init] : buffers[carry.out];
    char* work = static_cast<char*>(buffers[carry.work]) + (step & 1) * *bytes++;
    buffers[carry.out] = last || carry.in_place ? buffers[carry.result] : work;
  }
}

/// The index, in stacks, of the first slice in memory among those of a scan's steps step..end-1.
int64_t first_time(const StagePlan& scan, int64_t length, int64_t step, int64_t end) {
  return scan.reverse ? length - end : step;
}

}  // namespace

void Run::run(Team& team, std::span<void*> buffers) {
  if (std::ranges::any_of(sizes_, [](const StageSizes& sizes) { return sizes.chunk > 0; }))
    progress_ = std::vector<Progress>(sizes_.size());
  if (team.size() > 1 && std::ranges::any_of(plan_.stages, &StagePlan::outside)) {
    Member caller{buffers.data(), 0, 1, nullptr, 0, &team};
    run_between_regions(plan_.stages, caller);
  } else {
    run_region(plan_.stages, team, buffers.data());
  }
  if (failed_at_ != kNever) std::rethrow_exception(failure_);
}

bool Run::run_region(Stages stages, Team& team, void** buffers) {
  auto run_alone = [&] {
    Member alone{buffers, 0, 1, nullptr, 0};
    run_stages(stages, alone);
    release_tiles();
  };
  if (parted_at_ != kNever) alone_ = false;  // positions count from 0 again
  const int64_t most = team.size();
  if (most <= 1) {
    run_alone();
    return failed_at_ == kNever;
  }
  const bool sets_buffers = plan_.stage_count > static_cast<int64_t>(plan_.stages.size()) || !places_.empty();
  // All memory of the members is allocated here, since an exception in a region would end the process.
  const size_t count = plan_.buffers.size();
  std::vector<void*> own;
  for (int64_t i = 1; sets_buffers && i < most; ++i) {
    own.insert(own.end(), buffers, buffers + count);
    for (const PlacesOfMembers& places : places_) {
      void*& entry = own[own.size() - count + static_cast<size_t>(places.buffer)];
      entry = static_cast<char*>(entry) + i % places.count * places.bytes;
    }
  }
  SpinBarrier barrier;
  team.run([&](int64_t thread, int64_t threads) {
    if (threads == 1) return run_alone();
    barrier.set_members(threads);
    const bool is_first = thread == 0 || !sets_buffers;
    Member member{is_first ? buffers : own.data() + static_cast<size_t>(thread - 1) * count, thread, threads, &barrier,
                  0};
    run_stages(stages, member);
    release_tiles();
  });
  return failed_at_ == kNever;
}

bool Run::is_shared(Stages stages) const {
  int64_t work = 0;
  for (const StagePlan& stage : stages) work += std::min(sizes_of(stage).work, target::kWakeWork);
  return share_all_ || work >= target::kWakeWork;
}

bool Run::run_between_regions(Stages stages, Member& caller) {
  SerialTeam alone;
  while (!stages.empty()) {
    auto inside = std::ranges::find(stages, true, &StagePlan::outside);
    auto count = static_cast<size_t>(inside - stages.begin());
    Team& team = is_shared(stages.first(count)) ? *caller.team : alone;
    if (count > 0 && !run_region(stages.first(count), team, caller.buffers)) return false;
    stages = stages.subspan(count);
    if (stages.empty()) break;
    if (!run_stage(stages.front(), caller)) return false;
    stages = stages.subspan(1);
  }
  return true;
}

bool Run::run_stages(Stages stages, Member& member) {
  if (member.team) return run_between_regions(stages, member);
  while (!stages.empty()) {
    const StagePlan& stage = stages.front();
    const bool side_by_side = sizes_of(stage).side_by_side;
    if (!(side_by_side ? run_side_by_side(stages, member) : run_stage(stage, member))) return false;
    stages = stages.subspan(side_by_side ? static_cast<size_t>(stage.side_by_side.scans.back()) + 1 : 1);
  }
  return true;
}

bool Run::run_side_by_side(Stages stages, Member& member) {
  auto run_all = [&](const std::vector<int64_t>& places) {
    return std::ranges::all_of(places,
                               [&](int64_t place) { return run_stage(stages[static_cast<size_t>(place)], member); });
  };
  const StagePlan::SideBySide& group = stages.front().side_by_side;
  if (!run_all(group.before)) return false;
  Member alone{member.buffers, 0, 1, nullptr, member.position};
  for (int64_t i = 0; i < std::ssize(group.scans); ++i) {
    const StagePlan& scan = stages[static_cast<size_t>(group.scans[static_cast<size_t>(i)])];
    if (sizes_of(scan).member % member.threads != member.thread) continue;
    if (settings().delays) delay();
    if (sizes_of(scan).chunk > 0)
      run_in_chunks(stages, i, alone);
    else
      run_scan(scan, alone);
  }
  return finish_stage(member) && run_all(group.after);
}

// Members run the scans of a group in its order, and a scan follows only scans before it. So the first unfinished scan
// never waits, and all members make progress.
void Run::run_in_chunks(Stages stages, int64_t scan, const Member& member) {
  const StagePlan::SideBySide& group = stages.front().side_by_side;
  auto stage_of = [&](int64_t i) -> const StagePlan& {
    return stages[static_cast<size_t>(group.scans[static_cast<size_t>(i)])];
  };
  auto progress_of = [&](const StagePlan& each) -> std::atomic<int64_t>& {
    return progress_[static_cast<size_t>(each.index)].steps;
  };
  const StagePlan& own = stage_of(scan);
  const StageSizes& sizes = sizes_of(own);
  for (int64_t step = 0; step < sizes.length; step += sizes.chunk) {
    const int64_t end = std::min(step + sizes.chunk, sizes.length);
    for (const StagePlan::Follows& follows : group.follows)
      if (follows.scan == scan)
        wait_for([&] { return progress_of(stage_of(follows.leader)).load(std::memory_order_acquire) >= end; });
    if (settings().delays) delay();
    run_window(own, 0, own.splits_rows ? sizes.rows : 0, step, end, member);
    progress_of(own).store(end, std::memory_order_release);
  }
}

bool Run::run_stage(const StagePlan& stage, Member& member) {
  if (settings().delays) delay();
  // This pack is left out, or made by the products that read it. No barrier is needed, since all members decide alike.
  if (const auto* pack = std::get_if<PackCall>(&stage.call); pack && !packs_before(member.buffers[pack->destination]))
    return true;
  if (sizes_of(stage).is_windowed) return true;
  switch (stage.kind) {
    case StagePlan::Kind::kRows:
      run_rows(stage, member);
      break;
    case StagePlan::Kind::kScan:
      run_scan(stage, member);
      break;
    case StagePlan::Kind::kCall:
      run_call(stage, member);
      break;
    default:
      return run_control(stage, member);
  }
  return finish_stage(member);
}

bool Run::finish_stage(Member& member) {
  if (!member.barrier) return failed_at_.load(std::memory_order_relaxed) == kNever;
  member.barrier->arrive_and_wait();
  // A faster member may have failed in the next stage already. Only a failure before this barrier ends the run here, so
  // that all members end at the same stage.
  return failed_at_.load(std::memory_order_relaxed) > member.position++;
}

bool Run::run_control(const StagePlan& stage, Member& member) {
  auto run = [&](Member& by) {
    if (stage.kind == StagePlan::Kind::kLoop) return run_loop(stage, by);
    return stage.kind == StagePlan::Kind::kCond ? run_cond(stage, by) : run_while(stage, by);
  };
  const bool shares = member.barrier || member.team;
  if (!shares || !sizes_of(stage).one_member || share_all_) return run(member);
  if (member.thread == 0) {
    Member alone{member.buffers, 0, 1, nullptr, member.position};
    run(alone);
  }
  return finish_stage(member);
}

bool Run::run_loop(const StagePlan& stage, Member& member) {
  const ControlPlan& loop = stage.control;
  const StageSizes& sizes = sizes_of(stage);
  if (sizes.length == 0) {
    for (auto [from, to] : stage.carry_copies) copy(from, to, member);
    return finish_stage(member);
  }
  void** buffers = member.buffers;
  for (int64_t step = 0; step < sizes.length; ++step) {
    const int64_t time = loop.reverse ? sizes.length - 1 - step : step;
    const int64_t* bytes = sizes.bytes.data();
    for (const ControlPlan::Slice& slice : loop.slices)
      buffers[slice.buffer] = static_cast<char*>(buffers[slice.stack]) + time * *bytes++;
    set_carries(loop, bytes, step, step + 1 == sizes.length, buffers);
    if (!run_stages(loop.regions[0], member)) return false;
  }
  return true;
}

bool Run::run_cond(const StagePlan& stage, Member& member) {
  const Stages chosen = stage.control.regions[is_true(member.buffers[stage.control.predicate]) ? 0 : 1];
  return chosen.empty() ? finish_stage(member) : run_stages(chosen, member);
}

bool Run::run_while(const StagePlan& stage, Member& member) {
  const ControlPlan& loop = stage.control;
  void** buffers = member.buffers;
  for (const ControlPlan::Carry& carry : loop.carries) buffers[carry.arg] = buffers[carry.init];
  for (int64_t step = 0;; ++step) {
    if (!run_stages(loop.regions[0], member)) return false;
    if (!is_true(buffers[loop.predicate])) break;
    set_carries(loop, sizes_of(stage).bytes.data(), step, false, buffers);
    if (!run_stages(loop.regions[1], member)) return false;
    for (const ControlPlan::Carry& carry : loop.carries) buffers[carry.arg] = buffers[carry.out];
  }
  for (const ControlPlan::Carry& carry : loop.carries) copy(carry.arg, carry.result, member);
  return finish_stage(member);
}

void Run::copy(int64_t from, int64_t to, const Member& member) const {
  if (member.buffers[from] == member.buffers[to]) return;
  const int64_t bytes = bytes_of(plan_.buffers[static_cast<size_t>(to)], symbols_);
  Share share = share_of(bytes, target::kCacheLine, member.thread, member.threads);
  if (share.first == share.last) return;
  std::memcpy(static_cast<char*>(member.buffers[to]) + share.first,
              static_cast<const char*>(member.buffers[from]) + share.first,
              static_cast<size_t>(share.last - share.first));
}

void Run::run_rows(const StagePlan& stage, const Member& member) {
  const StageSizes& sizes = sizes_of(stage);
  const int64_t units = sizes.by_columns ? std::min(member.threads, stage.column_shares) : 1;
  run_part(function_of(stage), {0, sizes.rows}, units, stage.row_block, member);
}

void Run::run_part(StageFunction function, const Share& rows, int64_t units, int64_t block,
                   const Member& member) const {
  auto run = [&](int64_t first, int64_t last, int64_t unit) {
    if (first < last) function(member.buffers, dims_, nullptr, first, last, unit, units, 0, 1);
  };
  if (units > 1) {
    if (member.thread < units) run(rows.first, rows.last, member.thread);
    return;
  }
  const Share share = rows_of(rows.last - rows.first, block, member.thread, member.threads);
  run(rows.first + share.first, rows.first + share.last, 0);
}

void Run::run_scan(const StagePlan& stage, Member& member) {
  if (stage.batch_sizes >= 0 && !fits(stage, member)) return;
  const StageSizes& sizes = sizes_of(stage);
  if (sizes.length == 0) {
    for (auto [from, to] : stage.carry_copies) copy(from, to, member);
    return;
  }
  // A region may have fewer threads than were asked for but never more, so there is memory for each member.
  const bool shares = alone_ && member.threads > 1 && sizes.sharers >= member.threads;
  if (shares && parted_at_.load(std::memory_order_relaxed) >= member.position)
    run_by_columns(stage, member);
  else
    run_by_rows(stage, 0, member);
}

bool Run::should_part(Nanoseconds all, Nanoseconds waited, int64_t members, int64_t looks) const {
  constexpr Nanoseconds kLong = std::chrono::microseconds(200);  // a shorter wait is chance
  if (const int64_t wanted = settings().contention; wanted >= 0) return wanted == 1 + looks;
  if (share_all_) return false;
  // Alone a member would take `members` times as long as its part, without waiting.
  if (waited > kLong && (all - waited) * members < all) contention().report();
  return contention().is_high();
}

void Run::run_by_columns(const StagePlan& scan, Member& member) {
  constexpr int64_t kFirstSteps = 1, kMostSteps = 64;  // steps between looks at the waits
  const StageSizes& sizes = sizes_of(scan);
  const int64_t length = sizes.length, rows = scan.splits_rows ? sizes.rows : 0;
  const int64_t window = sizes.window > 0 ? sizes.window : length;
  const bool in_parts = scan.step.barriers > 0 && scan.batch_sizes < 0;  // a ragged scan can't
  int64_t steps = in_parts ? kFirstSteps : length, looks = 0;
  for (int64_t step = 0, end = 0; step < length; step = end) {
    const int64_t from = step / window * window, until = std::min(from + window, length);
    if (step == from) fill_window(scan, from, until, member);
    end = std::min(step + steps, until);
    const auto begin = Clock::now();
    const Nanoseconds waited = waited_here();
    const int64_t time = first_time(scan, length, from, until);
    move_stacks(scan, -time, member.buffers);
    function_of(scan)(member.buffers, dims_, member.barrier, 0, rows, member.thread, member.threads, step, end);
    move_stacks(scan, time, member.buffers);
    if (should_part(Clock::now() - begin, waited_here() - waited, member.threads, ++looks)) part(member);
    if (end == length) return;
    member.barrier->arrive_and_wait();
    if (parted_at_.load(std::memory_order_relaxed) <= member.position++) return run_by_rows(scan, end, member);
    steps = std::min(2 * steps, kMostSteps);
  }
}

void Run::run_by_rows(const StagePlan& scan, int64_t step, const Member& member) {
  const StageSizes& sizes = sizes_of(scan);
  if (!scan.splits_rows) {
    if (member.thread == 0) run_window(scan, 0, 0, step, sizes.length, member);
    return;
  }
  const Share range = scan.batch_sizes >= 0
                          ? share_of_steps(batch_sizes(scan, member), sizes.rows, member.thread, member.threads)
                          : share_of(sizes.rows, 1, member.thread, member.threads);
  if (range.first >= range.last) return;
  const int64_t window = sizes.window > 0 ? sizes.window : sizes.length;
  for (; step < sizes.length; step += window)
    run_window(scan, range.first, range.last, step, std::min(step + window, sizes.length), member);
}

void Run::run_window(const StagePlan& scan, int64_t first, int64_t last, int64_t step, int64_t end,
                     const Member& member) {
  const StageSizes& sizes = sizes_of(scan);
  void** buffers = member.buffers;
  const int64_t time = first_time(scan, sizes.length, step, end), until = time + end - step;
  move_stacks(scan, -time, buffers);
  for (const StagePlan::Window& window : windows_of(scan)) {
    const StageFunction function = code_.functions[static_cast<size_t>(window.stage)];
    const int64_t rows = sizes_[static_cast<size_t>(window.stage)].rows / sizes.length;  // the rows of a step
    const int64_t of_row = rows / sizes.rows;
    auto run = [&](int64_t from, int64_t to, int64_t begin = 0, int64_t stop = 1) {
      function(buffers, dims_, nullptr, from, to, 0, 1, begin, stop);
    };
    if (first == 0 && last == sizes.rows)
      run(time * rows, until * rows);
    else if (window.weight_bytes > 0)  // it has a product
      run(first * of_row, last * of_row, time, until);
    else
      for (int64_t t = time; t < until; ++t) run(t * rows + first * of_row, t * rows + last * of_row);
  }
  function_of(scan)(buffers, dims_, nullptr, first, last, 0, 1, step, end);
  move_stacks(scan, time, buffers);
}

void Run::fill_window(const StagePlan& scan, int64_t step, int64_t end, const Member& member) {
  const std::span<const StagePlan::Window> windows = windows_of(scan);
  if (windows.empty()) return;
  if (settings().delays) delay();
  const int64_t length = sizes_of(scan).length, time = first_time(scan, length, step, end);
  move_stacks(scan, -time, member.buffers);
  for (const StagePlan::Window& window : windows) {
    const int64_t rows = sizes_[static_cast<size_t>(window.stage)].rows / length;  // the rows of a step
    const int64_t units = window.column_shares >= member.threads ? member.threads : 1;
    run_part(code_.functions[static_cast<size_t>(window.stage)], {time * rows, (time + end - step) * rows}, units, 1,
             member);
  }
  move_stacks(scan, time, member.buffers);
  member.barrier->arrive_and_wait();
}

std::span<const StagePlan::Window> Run::windows_of(const StagePlan& scan) const {
  return {scan.windows.data(), sizes_of(scan).window > 0 ? scan.windows.size() : 0};
}

void Run::move_stacks(const StagePlan& scan, int64_t times, void** buffers) const {
  for (const StagePlan::Window& window : windows_of(scan))
    for (int64_t buffer : window.buffers)
      buffers[buffer] = reinterpret_cast<void*>(reinterpret_cast<intptr_t>(buffers[buffer]) +
                                                times * step_bytes(plan_, buffer, symbols_, sizes_of(scan).length));
}

std::span<const int64_t> Run::batch_sizes(const StagePlan& stage, const Member& member) const {
  return {static_cast<const int64_t*>(member.buffers[stage.batch_sizes]), static_cast<size_t>(sizes_of(stage).length)};
}

bool Run::fits(const StagePlan& stage, const Member& member) {
  try {
    std::string misfit = batch_sizes_misfit(batch_sizes(stage, member), sizes_of(stage).rows, sizes_of(stage).packed);
    if (misfit.empty()) return true;
    fail(member, std::make_exception_ptr(Error(misfit)));
  } catch (...) {  // no memory for the message
    fail(member, std::current_exception());
  }
  return false;
}

void Run::run_call(const StagePlan& stage, const Member& member) {
  std::exception_ptr failure;
  try {
    std::string error;
    const CallContext context{member.buffers, symbols_, member.thread, member.threads};
    const bool is_callback = std::holds_alternative<CallbackCall>(stage.call);
    if (is_callback ? code_.callbacks[static_cast<size_t>(stage.index)](context, error)
                    : run_kernel(stage.call, context, error))
      return;
    failure = std::make_exception_ptr(Error(error));
  } catch (...) {
    failure = std::current_exception();
  }
  fail(member, failure);
}

void Run::part(const Member& member) {
  std::lock_guard lock(mutex_);
  parted_at_ = std::min(parted_at_.load(), member.position);
}

void Run::fail(const Member& member, const std::exception_ptr& failure) {
  std::lock_guard lock(mutex_);
  if (failed_at_ == kNever) failure_ = failure;
  failed_at_ = std::min(failed_at_.load(), member.position);
}

}  // namespace weft::runtime
