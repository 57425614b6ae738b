#pragma once

#include <span>
#include <string_view>

#include "ir/program.h"

/// Programs of any number of ops, as whole models give them.
namespace weft::large_programs {

struct Kind {
  std::string_view name;
  ir::Program (*make)(int64_t ops);  ///< of about so many ops, before any pass
  bool differentiated;  ///< the benchmark takes its derivative first, and that has about three times as many
};

std::span<const Kind> kinds();

/// The ops of a block, those of regions included.
int64_t count_ops(const ir::Block& block);

}  // namespace weft::large_programs
