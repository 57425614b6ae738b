#pragma once

#include "runtime/calls/kernel_call.h"

namespace weft::runtime {

// One member's share of a call, for each kind of call (run_kernel chooses).

bool run(const PackCall& call, const CallContext& context, std::string& error);
bool run(const OuterCall& call, const CallContext& context, std::string& error);
bool run(const ColumnSumCall& call, const CallContext& context, std::string& error);
bool run(const ProductCall& call, const CallContext& context, std::string& error);
bool run(const FoldCall& call, const CallContext& context, std::string& error);
bool run(const IotaCall& call, const CallContext& context, std::string& error);
bool run(const SizeCall& call, const CallContext& context, std::string& error);
bool run(const DivideCall& call, const CallContext& context, std::string& error);
bool run(const CopyCall& call, const CallContext& context, std::string& error);
bool run(const PadCall& call, const CallContext& context, std::string& error);
bool run(const GatherCall& call, const CallContext& context, std::string& error);
bool run(const ScatterCall& call, const CallContext& context, std::string& error);
bool run(const ScatterAddCall& call, const CallContext& context, std::string& error);
bool run(const DynamicSliceCall& call, const CallContext& context, std::string& error);
bool run(const DynamicUpdateCall& call, const CallContext& context, std::string& error);

}  // namespace weft::runtime
