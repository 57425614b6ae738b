"""One model of the survey, in a process of its own: GROUP CELLS --list, or GROUP CELLS NAME OPTIONS.

Its last line of output is JSON: the names of the group, or the figures of the model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from weft._base import users_code
from weft.explanation._explain import explain
from weft.explanation._survey import habits
from weft.explanation._survey import models as _models
from weft.explanation._survey.models import NotInstalled, makers
from weft.explanation._survey.study_rows import row_of


def main(words: list[str]) -> int:
    """The exit status: 2 where the group's package is not there."""
    group, cells = words[0], Path(words[1])
    for module in (habits, _models):
        users_code.count_as_users(module.__file__)
    try:
        found = makers(group, cells)
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 2
    if words[2] == "--list":
        print(json.dumps(list(found)))
        return 0
    options = json.loads(words[3])
    torch.manual_seed(0)
    model, args, kwargs = found[words[2]]()
    if isinstance(model, torch.nn.Module):
        model.train(options["train"])
    with torch.set_grad_enabled(options["train"]):
        results = explain(model, *args, **kwargs, **options).results
        torch.compiler.reset()
        try:
            more = explain(
                model, *args, **kwargs, **(options | {"backend": "weft", "seconds": 0.1, "rounds": 3, "hlo": False})
            ).results
        except Exception:  # the row says what there is
            more = None
    print(json.dumps(row_of(results, more)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
