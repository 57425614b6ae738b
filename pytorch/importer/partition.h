#pragma once

#include <cstdint>
#include <vector>

namespace weft::importer {

/// A graph in which some nodes may run as part of a program. Nodes are numbered in the graph's order, so a node waits
/// only for nodes with smaller numbers.
struct DependenceGraph {
  std::vector<std::vector<int64_t>> waits;  ///< the nodes that each node must run after
  std::vector<bool> is_member;              ///< may be part of a program
  std::vector<bool> is_call;                ///< already a call of a program; such nodes are members
};

/// The nodes that run as one call, as lists in the graph's order: each list holds at least one call and another node.
/// No path leaves a list and comes back to it, so the graph stays free of cycles when each list becomes one node.
///
/// First each member joins the nodes that it waits for. Then members that wait for the same node join (the weight
/// gradient of a layer beside a recurrence reads what the recurrence's gradient reads). Each pair is tried once, in the
/// graph's order. A pair costs what lies between the two in a topological order of the lists, which is kept up to date
/// (as in D. Pearce and P. Kelly, A dynamic topological sort algorithm for directed acyclic graphs, 2006).
///
/// ValueError of Python's (std::invalid_argument) if a node waits for itself or for a later one.
std::vector<std::vector<int64_t>> partition(const DependenceGraph& graph);

}  // namespace weft::importer
