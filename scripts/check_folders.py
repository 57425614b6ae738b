"""Checks that no folder has more files than one finds one's way in: 30 that git tracks, folders in it not counted.

Prints each folder that has more and exits with 1 when there is one.
Usage: check_folders.py [ROOT]
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

MOST = 30
#: Folders that may have more, with their number of files, which may only fall. There is none.
ABOVE: dict[str, int] = {}


def faults(counts: dict[str, int], above: dict[str, int]) -> list[str]:
    """One line for each folder with more files than it may have, and for each number in `above` that is too high."""
    found = []
    for folder in sorted({*counts, *above}):
        count, most = counts.get(folder, 0), above.get(folder, MOST)
        if count > most:
            found.append(f"{folder}: {count} files, at most {most}; part it, as its files belong together")
        elif folder in above and count < most:
            what = f"write {count} into" if count > MOST else "take it out of"
            found.append(f"{folder}: {count} files, no longer {most}; {what} ABOVE (scripts/check_folders.py)")
    return found


def tracked(root: Path) -> dict[str, int]:
    """How many files git tracks in each folder under `root`."""
    command = ["git", "-C", str(root), "ls-files"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    files = (Path(line) for line in done.stdout.splitlines())
    return Counter(str(file.parent) for file in files if (root / file).exists())


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    found = faults(tracked(root), ABOVE)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
