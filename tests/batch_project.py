"""A small project of its own for the tests of the batch side, with notebooks that need no library."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]

HEADER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

# A tiny experiment

```{code-cell} ipython3
:tags: [parameters]

n_rounds = 10
step_size = 0.5
label = "none"
sizes = [1, 2]
quick = False
extra = None
```
"""

STUDY = """
```{code-cell} ipython3
import json, os, pathlib, pandas
run = pathlib.Path(os.environ["MLOGB_RUN_DIR"])
frame = pandas.DataFrame({"round": range(n_rounds), "regret": [step_size * i for i in range(n_rounds)]})
frame.to_parquet(run / "results.parquet")
data = {"name": "Digits", "source": "nowhere", "rows": 5000}
(run / "study.json").write_text(json.dumps({"studies": [{"data": [data], "seed": 1}], "findings": {}}))
(run / "environment.txt").write_text(" ".join(
    str(os.environ.get(k)) for k in ("MLOGB_JOBS", "OMP_NUM_THREADS", "MPLBACKEND")) + " " + os.getcwd()[-9:])
(run / "figures").mkdir()
(run / "figures" / "regret.png").write_bytes(b"png" + label.encode())
(run / "figures" / "regret.pdf").write_bytes(b"pdf" + label.encode())
```
"""

MANIFEST = """
experiments:
  tiny:
    title: A tiny experiment
    notebook: notebooks/tiny
    parameters: {step_size: 2}
    profiles:
      smoke: {n_rounds: 3}
      paper: {n_rounds: 4}
"""


def cell(code: str) -> str:
    """A code cell of a MyST text."""
    return f"\n```{{code-cell}} ipython3\n{code}\n```\n"


def make_project(root: Path, *cells: str) -> Path:
    """Write a project whose one notebook has the parameters cell and these cells."""
    (root / "experiments.yml").write_text(MANIFEST)
    shutil.copy(ROOT / "jupytext.toml", root)
    text = root / "notebooks" / "tiny.md"
    text.parent.mkdir()
    text.write_text(HEADER + "".join(cells))
    return text
