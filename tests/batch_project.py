"""Small projects, each in a folder of its own, for the tests of runs."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from compendium.experiments import Setting, Study, Synthetic

ROOT = Path(__file__).parents[1]

#: A study that is computed in less than a second.
SMALL_STUDY = Study(experiment="tests", n_rounds=25, n_trials=5, seed=2, settings=[Setting(
    name="one", problem=Synthetic(dimension=4, rewards=(1.0,), parameter_norm=2.0), sketch_size=2,
    regularization=0.5, step_size=1.0, norm_bound=2.0, radius={"kind": "constant", "beta": 0.1},
    policies=("eofd", "random"),
)])  # fmt: skip

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
from compendium.system.provenance import hand_over_environment
run = pathlib.Path(os.environ["MLOGB_RUN_DIR"])
frame = pandas.DataFrame({"round": range(n_rounds), "regret": [step_size * i for i in range(n_rounds)]})
frame.to_parquet(run / "results.parquet")
hand_over_environment(run)
data = {"name": "Digits", "source": "nowhere", "rows": 5000}
(run / "study.json").write_text(json.dumps({"studies": [{"data": [data], "seed": 1}], "findings": {}}))
(run / "environment.txt").write_text(" ".join(
    str(x) for x in (json.loads(os.environ["MLOGB_ORDERS"])["jobs"], os.environ.get("OMP_NUM_THREADS"),
                     os.environ.get("MPLBACKEND"), os.getcwd()[-9:])))
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


STUDY_HEADER = HEADER[: HEADER.index("n_rounds = 10")] + "n_rounds = 30\nn_trials = 4\nslow = 0.0\n```\n"

#: The cells of a notebook with a study, a printed table, a figure and published results.
REAL_CELLS = (
    """
import matplotlib.pyplot as plt

from compendium.report import figures
from compendium.experiments.problems import Synthetic
from compendium.experiments.study import Setting, Study, publish
""",
    """
problem = Synthetic(dimension=5, rewards=(0.5, 1.0), parameter_norm=2.0, n_actions=(3, 9))
setting = Setting(
    name="small", problem=problem, sketch_size=3, regularization=0.5, step_size=1.0, norm_bound=2.0,
    radius={"kind": "ridge", "scale": 0.05}, policies=("eofd", "random"),
)
results = Study(
    experiment="tiny", settings=[setting, setting.model_copy(update={"name": "large", "sketch_size": 4})],
    n_rounds=n_rounds, n_trials=n_trials, seed=3,
).run()
""",
    """
table = results.final_regret.pivot_table(index="policy", columns="setting", values="regret", observed=True)
print(table.round(4))
table
""",
    """
figure = figures.regret_curves(results.rounds, {"small": "small", "large": "large"})
figures.save(figure, "tiny_regret")
plt.show()
""",
    'publish(results, regret=float(table.loc["eofd", "small"]))\n',
)

REAL_MANIFEST = """
experiments:
  tiny:
    title: A study with a figure
    notebook: notebooks/tiny
    profiles:
      smoke: {n_rounds: 12, n_trials: 2}
      paper: {n_rounds: 30, n_trials: 4}
"""


def make_real_project(root: Path, *first: str) -> Path:
    """Write a project whose notebook executes these cells and then runs a study."""
    text = make_project(root)
    (root / "experiments.yml").write_text(REAL_MANIFEST)
    text.write_text(STUDY_HEADER + "".join(cell(code.strip("\n")) for code in (*first, *REAL_CELLS)))
    return text


def command(*arguments: str) -> list[str]:
    """The arguments that start the command line in a process of its own."""
    return [sys.executable, "-c", "from compendium.cli import main; main()", *arguments]


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return what it prints."""
    options = ["-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always"]
    done = subprocess.run(
        ["git", "-C", str(folder), *options, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def wait_until(condition, latest: float = 120.0, pause: float = 0.01):
    """Wait until a condition is true, and return its value; fail after `latest` seconds."""
    deadline = time.monotonic() + latest
    while not (found := condition()):
        assert time.monotonic() < deadline, f"the condition was not true within {latest:g} s"
        time.sleep(pause)
    return found


def numbers_of(run: Path) -> dict[str, str]:
    """Digests of the files of a run whose content is neither measured nor depends on the date."""
    found = {name: (run / name).read_bytes() for name in ("results.parquet", "final.parquet", "study.json")}
    notebook = json.loads((run / "tiny.ipynb").read_text())
    found["tiny.ipynb"] = json.dumps(notebook, sort_keys=True).encode()
    return {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}
