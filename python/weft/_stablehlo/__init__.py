"""Programs as StableHLO, for XLA and whatever else reads it."""
