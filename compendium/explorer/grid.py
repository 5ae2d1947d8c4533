"""What the explorer page shows and cannot compute in a browser: regrets, sketching errors and times.

Games are played with the library over a grid of the page's parameters and written as one script that
assigns a constant, since a page opened from a file may not fetch another file. Every number but the
times can be computed again from an entry's key; `make explorer` computes all of them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from compendium.experiments.trials import TIMES, TrialSpec, library_digest
from compendium.explorer.games import RIDGE, STEP_SIZE, Choice
from compendium.system import paths
from compendium.system.provenance import code_root, environment, git_state

#: The values that the page's controls can take, in the order of a key.
GRID: dict[str, tuple[float, ...]] = {
    "K": (1, 3),
    "d": (2, 10, 50, 300),
    "m": (1, 2, 5, 10, 20, 50),
    "decay": (0, 1, 2),
    "S": (1, 3, 10),
    "scale": (0, 0.001, 0.03, 1),
}
N_ROUNDS = 400
N_TRIALS = 4
SEED = 20261128
CHECKPOINTS = tuple(range(25, N_ROUNDS + 1, 25))
#: Rounds of a timing game, the first half of them unused: every sketch is full by then.
TIMED_ROUNDS = 160
TIMED_GAMES = 3
TIMED_AT: dict[str, Any] = {"decay": 1, "S": 3, "scale": 0.001}
TIMED = ("eofd", "oful", "first-order", "random", "eofd-compiled", "oful-compiled")

_PREFIX = "globalThis.EXPLORER_RECORD = "
_COMMENT = "// Computed by `make explorer`; do not edit.\n"


class Point(NamedTuple):
    """One point of the grid."""

    K: int
    d: int
    m: int
    decay: float
    S: float
    scale: float

    @property
    def choice(self) -> Choice:
        """The parameters as the explorer takes them."""
        return Choice(
            n_outcomes=self.K,
            n_features=self.d,
            sketch_size=self.m,
            decay=self.decay,
            norm_bound=self.S,
            scale=self.scale,
        )

    def key(self, *names: str) -> str:
        """The named parameters, all six by default, as an entry's key.

        Examples
        --------
        >>> Point(1, 2, 5, 1, 3, 0.001).key("K", "d", "scale")
        '1/2/0.001'
        """
        values = self._asdict()
        return "/".join(f"{values[name]:g}" for name in names or self._fields)


#: The parameters on which the regret of a policy depends: not every policy has a sketch or a radius.
KEYS: dict[str, tuple[str, ...]] = {
    "eofd": Point._fields,
    "oful": ("K", "d", "decay", "S", "scale"),
    "first-order": ("K", "d", "decay", "S", "scale"),
    "random": ("K", "d", "decay", "S"),
}


def points() -> Iterator[Point]:
    """The points of the grid; of the sketch sizes with m >= Kd, which are exact, the smallest alone."""
    for values in itertools.product(*GRID.values()):
        point = Point(*values)  # type: ignore[arg-type]
        smaller = [m for m in GRID["m"] if m < point.m]
        if not smaller or smaller[-1] < point.K * point.d:
            yield point


def games(point: Point, policies: tuple[str, ...], compiled: bool = False) -> dict[str, dict[str, Any]]:
    """Entries of some policies at a point, from games played with the library.

    Parameters
    ----------
    point : Point
        The parameters.
    policies : tuple of str
        Which policies play. An entry does not depend on which others play beside it.
    compiled : bool
        Whether numba's kernels play for those policies that have them: the same actions, sooner.

    Returns
    -------
    dict
        By policy: `curve`, the mean over trials of the cumulative regret at the checkpoints; `sd`, the
        standard deviation of its last value; and for "eofd" `rho`, the mean shrinkage at the end.
    """
    players = {
        name: f"{name}-compiled" if compiled and name in ("eofd", "oful") else name for name in policies
    }
    frames = [_spec(point, tuple(players.values()), trial).compute() for trial in range(N_TRIALS)]
    entries: dict[str, dict[str, Any]] = {}
    for name, player in players.items():
        curves = np.array([_curve(frame, player) for frame in frames])
        mean, spread = curves.mean(axis=0), curves[:, -1].std(ddof=1)
        entries[name] = {"curve": list(map(_rounded, mean)), "sd": _rounded(spread)}
    if "eofd" in players:
        rho = np.mean([frame.attrs["final"][players["eofd"]]["shrinkage"] for frame in frames])
        entries["eofd"]["rho"] = _rounded(rho)
    return entries


def times(point: Point) -> dict[str, float]:
    """Median milliseconds of a round by policy, with a full sketch: the best of some short games.

    Other work on the machine makes a round longer and never shorter, so the shortest median is kept.
    """
    medians = []
    for _ in range(TIMED_GAMES):
        frame = _spec(point, TIMED, trial=0, n_rounds=TIMED_ROUNDS).compute()
        frame = frame[frame["round"] > TIMED_ROUNDS // 2]
        spent = frame[list(TIMES)].sum(axis=1).groupby(frame["policy"], observed=True).median()
        medians.append([1e3 * spent[policy] for policy in TIMED])
    return dict(zip(TIMED, (_rounded(value, 3) for value in np.min(medians, axis=0)), strict=True))


def all_times() -> dict[str, dict[str, float]]:
    """`times` for all sizes of the grid, at one setting of the other parameters.

    A policy without a sketch has one time for each (K, d), the best of those beside any m.
    """
    sizes = list(dict.fromkeys(point._replace(**TIMED_AT) for point in points()))
    spent = {point: times(point) for point in sizes}
    for policy in TIMED:
        if not policy.startswith("eofd"):
            for point in sizes:
                same = [spent[other][policy] for other in sizes if other[:2] == point[:2]]
                spent[point][policy] = min(same)
    return {point.key("K", "d", "m"): spent[point] for point in sizes}


def compute() -> dict[str, Any]:
    """The whole record, with where it comes from; some ten minutes on one core."""
    state = git_state(code_root())
    regret: dict[str, dict[str, Any]] = {policy: {} for policy in KEYS}
    grid = list(points())
    for number, point in enumerate(grid, start=1):
        wanted = tuple(policy for policy, names in KEYS.items() if point.key(*names) not in regret[policy])
        for policy, entry in games(point, wanted, compiled=True).items():
            regret[policy][point.key(*KEYS[policy])] = entry
        if sys.stderr.isatty() or number % 100 == 0:
            print(f"{number} of {len(grid)} points", file=sys.stderr, flush=True)
    return {
        "provenance": {
            "version": version(paths.PROJECT_NAME),
            **state,
            "library_digest": library_digest(),
            "seed": SEED,
            "environment": environment(jobs=1),
        },
        "n_rounds": N_ROUNDS,
        "n_trials": N_TRIALS,
        "regularization": RIDGE,
        "step_size": STEP_SIZE,
        "grid": {name: list(values) for name, values in GRID.items()},
        "rounds": list(CHECKPOINTS),
        "timed_at": TIMED_AT,
        "regret": regret,
        "times": all_times(),
    }


def record_file() -> Path:
    """Where the record is kept."""
    return paths.project_root() / "book" / "_static" / "explorer_data.js"


def script(record: dict[str, Any]) -> str:
    """The record as a script with one line for an entry."""
    return f"{_COMMENT}{_PREFIX}{_json(record)};\n"


def read(path: Path | None = None) -> dict[str, Any]:
    """The record as it was written.

    Raises
    ------
    paths.FailureError
        If the file is missing or is not what `make explorer` writes.
    """
    path = path or record_file()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise paths.FailureError(f"{path.name} cannot be read ({error}); run `make explorer`") from None
    body = text.removeprefix(_COMMENT)
    if text.startswith(_COMMENT + _PREFIX) and text.endswith(";\n"):
        with contextlib.suppress(json.JSONDecodeError):
            record: dict[str, Any] = json.loads(body.removeprefix(_PREFIX)[: -len(";\n")])
            return record
    raise paths.FailureError(f"{path.name} is not what `make explorer` writes")


def _spec(point: Point, policies: tuple[str, ...], trial: int, n_rounds: int = N_ROUNDS) -> TrialSpec:
    return TrialSpec(
        experiment="explorer",
        setting=point.choice.setting(policies),
        n_rounds=n_rounds,
        seed=SEED,
        trial=trial,
    )


def _json(value: Any, indent: int = 1) -> str:
    """JSON with a line for each entry of a table, and no lines inside of an entry."""
    if not isinstance(value, dict) or not any(isinstance(entry, dict) for entry in value.values()):
        return json.dumps(value, ensure_ascii=False)
    lines = [f"{' ' * indent}{json.dumps(key)}: {_json(entry, indent + 1)}" for key, entry in value.items()]
    return "{\n" + ",\n".join(lines) + "\n" + " " * (indent - 1) + "}"


def _curve(frame: pd.DataFrame, policy: str) -> np.ndarray:
    """Cumulative regret at the checkpoints."""
    total = frame.loc[frame["policy"] == policy, "regret"].to_numpy().cumsum()
    return np.asarray(total[np.array(CHECKPOINTS) - 1])


def _rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


if __name__ == "__main__":
    # With the word `times`, the times alone are measured again.
    if sys.argv[1:] not in ([], ["times"]):
        sys.exit(f"the only argument is `times`, got {' '.join(sys.argv[1:])}")
    result = read() | {"times": all_times()} if sys.argv[1:] == ["times"] else compute()
    paths.write_atomically(record_file(), script(result))
    print(record_file().relative_to(paths.project_root()))
