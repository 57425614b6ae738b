"""What a step takes, as it is or changed: time, memory, pieces, and what XLA makes of it."""
