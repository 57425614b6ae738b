"""`weft.package` and `weft.load`: a trained step as an object file and a C header."""
