#pragma once

// Runs machine code for AMX on a processor without it: each of its instructions is an illegal one, and the signal that
// follows does its work by the emulated tile unit.

#if defined(__x86_64__) && defined(__linux__)
#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "runtime/kernels/isa_tables.h"
#include "runtime/simd/emulated_amx_unit.h"

namespace weft::runtime {
namespace {

/// An instruction of AMX at the registers' instruction pointer (Intel SDM, vol. 2, chapter 2): three bytes of VEX,
/// opcode, ModRM and, with an operand in memory, SIB and displacement.
class TileInstruction {
 public:
  explicit TileInstruction(greg_t* registers) : registers_(registers), code_(bytes_at(registers[REG_RIP])) {}

  /// Does the instruction's work. False if it is another instruction.
  bool run() {
    if (code_[0] != 0xc4 || (code_[1] & 0x1f) != 2) return false;
    const int kind = (code_[2] & 3) << 8 | code_[3];
    const int first = code_[4] >> 3 & 7, second = code_[4] & 7, third = ~(code_[2] >> 3) & 15;
    const bool in_memory = code_[4] >> 6 != 3;
    void* memory = in_memory ? address() : nullptr;
    using Unit = EmulatedAmxUnit;
    if (kind == kNoPrefix + 0x49 && in_memory) {
      TileConfig config;
      std::memcpy(&config, memory, sizeof(config));
      Unit::release();  // to set shapes makes zeros of all tiles, though they are the same shapes
      Unit::configure(config);
    } else if (kind == kNoPrefix + 0x49) {
      Unit::release();
    } else if (kind == k66 + 0x49 && in_memory) {
      std::memcpy(memory, &Unit::config(), sizeof(TileConfig));
    } else if (kind == kF2 + 0x49) {
      Unit::zero(first);
    } else if (kind == kF2 + 0x4b && in_memory) {
      Unit::load(first, memory, step_);
    } else if (kind == kF3 + 0x4b && in_memory) {
      Unit::store(first, memory, step_);
    } else if (kind == kF3 + 0x5c && !in_memory) {
      Unit::multiply(first, second, third);
    } else {
      return false;
    }
    registers_[REG_RIP] += length_;
    return true;
  }

 private:
  static constexpr int kNoPrefix = 0, k66 = 1 << 8, kF3 = 2 << 8, kF2 = 3 << 8;

  static const uint8_t* bytes_at(greg_t address) { return reinterpret_cast<const uint8_t*>(address); }

  greg_t value_of(int number) const {
    constexpr std::array<int, 16> kPlaces = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                             REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return registers_[kPlaces[static_cast<size_t>(number)]];
  }

  /// The address of the operand in memory without the index, which is the step of the tile's rows.
  void* address() {
    const int mode = code_[4] >> 6, rm = code_[4] & 7;
    const int high_index = code_[1] & 0x40 ? 0 : 8, high_base = code_[1] & 0x20 ? 0 : 8;
    const uint8_t* next = code_ + 5;
    int base = rm + high_base;
    if (rm == 4) {
      const int sib = *next++;
      const int index = (sib >> 3 & 7) + high_index;
      if (index != 4) step_ = value_of(index) << (sib >> 6);
      base = (sib & 7) + high_base;
    }
    greg_t at = 0;
    int32_t displacement = 0;
    if (mode == 1) displacement = static_cast<int8_t>(*next);
    const bool has_no_base = mode == 0 && base % 8 == 5;
    if (mode == 2 || has_no_base) std::memcpy(&displacement, next, sizeof(displacement));
    next += mode == 1 ? 1 : mode == 2 || has_no_base ? 4 : 0;
    length_ = next - code_;
    if (!has_no_base) at = value_of(base);
    if (has_no_base && rm == 5) at = registers_[REG_RIP] + length_;
    return reinterpret_cast<void*>(at + displacement);
  }

  greg_t* registers_;
  const uint8_t* code_;
  int64_t length_ = 5, step_ = 0;
};

/// Traps the instructions of all threads for as long as it lives.
class TrappedTiles {
 public:
  /// Whether this processor can run the instructions around those of AMX in the kernels for AMX.
  static bool are_possible() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw");
  }

  TrappedTiles() {
    struct sigaction action = {};
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
      auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
      if (!TileInstruction(registers).run()) signal(SIGILL, SIG_DFL);  // faults again at the return
    };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &before_);
  }
  ~TrappedTiles() { sigaction(SIGILL, &before_, nullptr); }
  /// The kernels to run while tiles are trapped. pair_kernels() would have each later parallel region of this process
  /// release tiles, which is an illegal instruction once nothing traps it.
  static const PairKernels& kernels() { return kAmxPairs; }

  TrappedTiles(const TrappedTiles&) = delete;
  TrappedTiles& operator=(const TrappedTiles&) = delete;

 private:
  struct sigaction before_ = {};
};

}  // namespace
}  // namespace weft::runtime
#endif
