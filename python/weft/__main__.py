"""`python -m weft`: see weft._command_line."""

from weft._command_line import main

if __name__ == "__main__":
    raise SystemExit(main())
