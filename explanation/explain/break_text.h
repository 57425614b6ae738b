// Takes apart what Dynamo writes about a graph break.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::explain {

/// A line of a Python traceback.
struct Frame {
  std::string file;
  int line = 0;
  std::string function;
  std::string code;
};

struct BreakText {
  std::string type;         ///< Dynamo's name of the kind, such as "Data-dependent branching"
  std::string code;         ///< of Dynamo's registry, such as "GB0170"; empty if Dynamo gave none
  std::string explanation;  ///< empty if Dynamo gave none
  std::vector<std::string> hints;
  std::string context;      ///< what Dynamo's developers want to know
  bool skipped = false;     ///< the whole frame ran in eager mode: Dynamo could not resume behind the break
  std::string skipped_by;   ///< the kind of the second break that made it so, such as "graph break in loop"
  std::vector<Frame> path;  ///< outermost first; the break is in the last
};

/// Takes apart the payload of the artifact `dynamo_graph_break_reason` of PyTorch's structured trace. A text of another
/// form gives its first line as type, and no path. Throws nothing.
BreakText parse_break(std::string_view payload);

}  // namespace weft::explain
