"""Programs on the lazy device: what cuts their steps, and which change mends a cut."""
