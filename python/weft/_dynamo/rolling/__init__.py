"""Python loops that Dynamo has unrolled become scans again, before AOTAutograd differentiates them.

Nodes that repeat are found on the graph. They are written as one program, node by node, and the pass `roll` decides
whether there is a loop in it (src/passes/rolling/roll.h). If so, a call of the program replaces the nodes. What a node
is in the IR comes from tracing its function once for all nodes of its kind, so that a long loop costs little more than
a short one.
"""
