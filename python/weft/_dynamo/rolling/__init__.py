"""Python loops that Dynamo has unrolled become scans again, before AOTAutograd differentiates them.

Which nodes repeat is seen on the graph; they are written as one program, node by node, and the pass `roll` decides
whether there is a loop in it (src/passes/rolling/roll.h). If there is, a call of the program takes the nodes' place.
What a node is in the IR comes from tracing its function once for all nodes of its kind, so that a long loop costs
little more than a short one.
"""
