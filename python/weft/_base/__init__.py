"""What every package of Weft stands on: data types, errors, pytrees, and the hooks into Python's imports and forks."""
