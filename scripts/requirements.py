"""Prints what pip has to install here beside what is there: the package's needs, and groups'.

Usage: requirements.py GROUP...   (of pyproject.toml's optional-dependencies; `build` is what its build-system needs,
`compile` alone goes without the package's needs). TORCH in the environment says which of PyTorch's releases
that the package is for.
"""

import importlib.metadata
import os
import sys
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:  # pip carries the same parser
    from pip._vendor import tomli as tomllib


def is_installed(wanted: str) -> bool:
    requirement = Requirement(wanted)
    try:
        return requirement.specifier.contains(importlib.metadata.version(requirement.name), prereleases=True)
    except importlib.metadata.PackageNotFoundError:
        return False


def main() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    groups = {"build": project["build-system"]["requires"], **project["project"]["optional-dependencies"]}
    wanted = [] if sys.argv[1:] == ["compile"] else [*project["project"]["dependencies"]]
    for group in sys.argv[1:]:
        wanted += groups[group]
    torch = f"torch=={os.environ['TORCH']}"
    wanted = [torch if Requirement(line).name == "torch" else line for line in wanted]
    print("\n".join(line for line in dict.fromkeys(wanted) if not is_installed(line)))


if __name__ == "__main__":
    main()
