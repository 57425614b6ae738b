"""What a report holds, and how it is written and read."""
