"""Golden tests: run tools on programs' text and compare what they print by FileCheck.

Run `lit build/tests/golden`, which tells the tools' paths, or `lit tests/golden` with WEFT_OPT, WEFT_RUN and FILECHECK
in the environment or the tools on PATH.
"""

import os
import shutil

import lit.formats

config.name = "weft"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".weft"]
config.excludes = ["programs"]
config.test_source_root = os.path.dirname(__file__)
if not getattr(config, "test_exec_root", None):  # CMake's configuration puts outputs into its build folder
    config.test_exec_root = os.path.join(config.test_source_root, "..", "..", "out", "golden")


def tool(attribute: str, variable: str, *names: str) -> str:
    """The path of a tool: from CMake, from the environment, or on PATH."""
    found = getattr(config, attribute, None) or os.environ.get(variable)
    for name in names:
        found = found or shutil.which(name)
    if not found:
        lit_config.fatal(f"{names[0]} not found: build it, or set {variable} to its path")
    return found


opt = tool("weft_opt", "WEFT_OPT", "weft-opt")
run = tool("weft_run", "WEFT_RUN", "weft-run")
filecheck = tool("filecheck", "FILECHECK", "FileCheck-19", "FileCheck")
config.substitutions += [
    ("%weft-opt", opt),
    ("%weft-run", run),
    ("%FileCheck", f"{filecheck} --enable-var-scope"),
    ("%programs", os.path.join(config.test_source_root, "programs")),
]
# Tests choose their own settings.
for variable in [name for name in config.environment if name.startswith("WEFT_")]:
    del config.environment[variable]
