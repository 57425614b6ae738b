"""clang-tidy over the project's C++ files, with what they include compiled once.

Most of clang-tidy's time is spent on headers of others: the standard library's, LLVM's, PyTorch's. Files that are
compiled with the same options share a precompiled header here, with what at least a tenth of them include, and the
templates instantiated that these ask for. Files of a target are read several at once, as the build joins them: half of
the time. --alone reads each by itself, and so finds what one forgets to include and others of its target have.

Usage: tidy.py [--alone] BUILD_FOLDER FILE...   (options of clang-tidy come from BUILD_FOLDER/compile_commands.json)
Prints what clang-tidy says, each line once. Status 1 if it says anything, or fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile

CLANG, TIDY = "clang++-19", "clang-tidy-19"
LEAST_FILES = 4  # that a precompiled header is worth making for
FILES_AT_ONCE = 12
FINDING = re.compile(r"(warning|error):")

Options = tuple[str, ...]


def options_of(command: str) -> Options:
    """The options of a compiler's command: without the compiler, the file, and where the result goes."""
    words = shlex.split(command)
    start = next(i for i, word in enumerate(words) if word.startswith("-"))
    found, rest = [], iter(words[start:])
    for word in rest:
        if word in ("-o", "-c"):
            next(rest)
        else:
            found.append(word)
    return tuple(found)


@cache
def others_headers(file: Path, folders: tuple[Path, ...]) -> frozenset[str]:
    """The headers of others that a file includes, or a header of ours that it includes does."""
    text = file.read_text()
    found = set(re.findall(r"^#include (<[^>]+>)", text, re.MULTILINE))
    for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        ours = next((folder / name for folder in (file.parent, *folders) if (folder / name).exists()), None)
        if ours and ours.suffix == ".h":
            found |= others_headers(ours, folders)
    return frozenset(found)


def often_included(options: Options, files: list[Path]) -> list[str]:
    folders = tuple(Path(word[2:]) for word in options if word.startswith("-I"))
    counts = Counter(header for file in files for header in others_headers(file, folders))
    return sorted(header for header, count in counts.items() if 10 * count >= len(files))


def precompile(options: Options, files: list[Path], header: Path) -> Path | None:
    """Compiles a header for files with these options. None where there is nothing to share, or it doesn't compile."""
    included = often_included(options, files)
    if len(files) < LEAST_FILES or not included:
        return None
    header.write_text("".join(f"#include {name}\n" for name in included))
    compiled = header.with_suffix(".pch")
    options = (*options, "-fpch-instantiate-templates", "-w")
    command = [CLANG, *options, "-x", "c++-header", str(header), "-o", str(compiled)]
    return compiled if subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0 else None


def tidy(build: Path, files: list[Path], options: Options | None, compiled: Path | None) -> tuple[bool, set[str]]:
    """Whether clang-tidy is content with files of one target, and its findings. Several are included by one."""
    command = [TIDY, "--quiet"]
    if (plugin := build / "own_code.so").exists():
        command.append(f"--load={plugin}")
    shared = ["-include-pch", str(compiled)] if compiled else []
    if options is None or len(files) == 1:
        command += ["-p", str(build), *(f"--extra-arg={word}" for word in shared), str(files[0])]
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    else:
        joined = "".join(f'#include "{file}"\n' for file in files)
        with NamedTemporaryFile("w", suffix=".cpp", dir=build / "tidy") as source:
            source.write(joined)
            source.flush()
            command += [source.name, "--", *options, *shared]
            answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return answer.returncode == 0, {line for line in answer.stdout.splitlines() if FINDING.search(line)}


def main() -> int:
    arguments = sys.argv[1:]
    at_once = 1 if "--alone" in arguments else FILES_AT_ONCE
    folder, *names = [each for each in arguments if each != "--alone"]
    build, wanted = Path(folder).resolve(), {Path(name).resolve() for name in names}
    # A file of two targets is read once; those that no target has are clang-tidy's to guess.
    options_by_file: dict[Path, Options] = {}
    target_of: dict[Path, Path] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if (file := Path(entry["file"]).resolve()) in wanted:
            options_by_file[file] = options_of(entry["command"])
            target_of[file] = Path(entry["output"].split(".dir/")[0])
    groups: dict[Options, list[Path]] = {}
    for file, options in options_by_file.items():
        groups.setdefault(options, []).append(file)
    headers = build / "tidy"
    headers.mkdir(exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # Files begin once the header of their group is there, while those of other groups are still compiled.
        largest_first = sorted(groups.items(), key=lambda group: -len(group[1]))
        compiled = {
            pool.submit(precompile, options, files, headers / f"{index}.h"): options
            for index, (options, files) in enumerate(largest_first)
        }
        work = [pool.submit(tidy, build, [file], None, None) for file in sorted(wanted - options_by_file.keys())]
        for header in as_completed(compiled):
            options = compiled[header]
            by_target = sorted(groups[options], key=lambda file: (target_of[file], file))
            for _, of_target in groupby(by_target, target_of.get):
                for files in batched(list(of_target), at_once):
                    work.append(pool.submit(tidy, build, files, options, header.result()))
        answers = [each.result() for each in work]
    for line in sorted(set().union(*(lines for _, lines in answers))):
        print(line)
    return 0 if all(content for content, _ in answers) else 1


def batched(files: list[Path], most: int) -> list[list[Path]]:
    """Lists of nearly the same length, of at most so many files."""
    parts = -(-len(files) // most)
    return [files[len(files) * i // parts : len(files) * (i + 1) // parts] for i in range(parts)]


if __name__ == "__main__":
    sys.exit(main())
