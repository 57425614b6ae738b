"""Models over time as steps: what `weft.stream` runs."""
