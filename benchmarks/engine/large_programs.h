#pragma once

#include <span>
#include <string_view>

#include "ir/program.h"

/// Programs of any number of ops, as whole models give them.
namespace weft::large_programs {

struct Kind {
  std::string_view name;
  ir::Program (*make)(int64_t ops);  ///< a program of about this many ops, before any pass
  bool differentiated;  ///< the benchmark first takes its derivative, which has about three times as many ops
};

std::span<const Kind> kinds();

/// The ops of a block, those of regions included.
int64_t count_ops(const ir::Block& block);

}  // namespace weft::large_programs
