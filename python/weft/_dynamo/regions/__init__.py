"""Regions of an ATen graph that join the programs of `weft.call` next to them.

A region is a set of nodes that can run as one call: no path leaves it and comes back. Views belong to no region: inside
a region they become part of the program, outside they stay views, and a view that both need is in both. What an op
means in the IR is decided in C++ (pytorch/importer); here is only which nodes go together.
"""
