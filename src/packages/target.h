#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft::packages {

/// The instructions by which a target multiplies bytes (emit/dots.h).
enum class Dots : uint8_t {
  kPlain,       ///< none: one product at a time
  kPairs,       ///< two products of 16 bits (SSE2's pmaddwd, WebAssembly's dot)
  kSignsMoved,  ///< four of bytes without a sign by bytes with one, in 16 bits between (pmaddubsw)
  kUnsigned,    ///< the same in 32 bits (vpdpbusd)
  kSigned,      ///< four of bytes with signs (sdot)
  kLong,        ///< two in 16 bits, which are added by twos (smull, smlal, sadalp)
  kHalfwords    ///< two of 16 bits, to which two instructions widen a word (sxtb16, smlad)
};

/// A machine that packages are made for, as code generation sees it: LLVM's names for it, and the numbers that
/// determine the shape of loops. Nothing is read from the machine that writes a package.
struct Target {
  std::string_view name;          ///< as users name it: "x86-64-v3"
  std::string_view architecture;  ///< targets of one architecture may share a library, which chooses among them
  std::string_view triple, cpu, features;
  std::string_view abi;          ///< LLVM's name of the calling convention, where the triple alone doesn't say
  int64_t vector_bytes;          ///< of a register, or of one f32 if there are no vectors
  int64_t registers;             ///< vector registers, or registers of f32
  int64_t chains;                ///< multiply-adds in flight at the same time
  int64_t steps = 1;             ///< of a call that computes several at once: it takes memory for so many
  bool wide_functions = true;    ///< functions of f32 compute in f64; else in f32 and integers of 32 bits alone
  bool rounds;                   ///< has instructions for floor, ceil and trunc
  bool rounds_to_even = true;    ///< and for round, where `rounds`, which LLVM knows
  bool avx512 = false;           ///< scales by powers of two, estimates reciprocals (codegen::VectorIsa)
  bool f16c = false;             ///< has instructions that convert f16
  bool fused = false;            ///< has multiply-adds of f64 that round once
  bool pairs = false;            ///< widens 16 bits sooner by a shift and a mask than by a load that shuffles
  bool fixed_addresses = false;  ///< there are no shared libraries
  bool hard_floats = false;      ///< ARM: floats are passed in their registers
  Dots dots = Dots::kPlain;
  int64_t byte_sums = 0;   ///< sums of products of bytes in registers at a time; 0: as many as of others
  bool for_bytes = false;  ///< differs from the target before it in `dots` alone
};

std::span<const Target> targets();

/// The target of that name. User's error "weft.package: there is no target 'x'; ..." for another name.
const Target& find_target(std::string_view name);

/// The name of the best target that this machine runs. Targets whose only advantage is in products of bytes count only
/// with `bytes`: packages without such products gain nothing by them.
std::string_view host_target(bool bytes = false);

/// Whether this machine's processor has the target's instructions.
bool runs_here(const Target& target);

}  // namespace weft::packages
