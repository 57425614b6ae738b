"""The base of all packages of Weft: data types, errors, pytrees, and hooks into Python's imports and forks."""
