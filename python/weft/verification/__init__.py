"""`weft.verify`: where two implementations of a recurrence part, and why."""
