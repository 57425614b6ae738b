"""Control flow as programs: `weft.scan` and its kin, in eager mode and under Dynamo, and PyTorch's own operators."""
