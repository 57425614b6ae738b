"""Prints what pip has to install to build Weft in place: the build's needs, the package's, and one optional group's.

Usage: requirements.py GROUP
"""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # pip carries the same parser
    from pip._vendor import tomli as tomllib


def main() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    groups = project["project"]["optional-dependencies"]
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"], *groups[sys.argv[1]]]
    print("\n".join(dict.fromkeys(wanted)))


if __name__ == "__main__":
    main()
