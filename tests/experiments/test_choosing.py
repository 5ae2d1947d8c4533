"""The rule of thumb of `book/choosing.md`, on the recorded grids and on problems that it was not read off."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pandas as pd
import pytest

from compendium.experiments.problems import Synthetic
from compendium.experiments.setting import Setting
from compendium.experiments.trials import TrialSpec
from compendium.runs import run as runs

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "choosing.md").read_text(encoding="utf-8")
RULE = {"regularization": 10.0, "step_size": 1.0, "scale": 1e-4}  # S between the true norm and thrice it


def test_the_page_states_the_rule():
    assert r"$\lambda = 10$, $\eta = 1$, $c = 10^{-4}$" in PAGE


@pytest.mark.parametrize("case", ["multinomial", "binary"])
def test_on_the_recorded_grids_the_rule_is_near_the_best_of_160(case):
    """What the page quotes: the regret of the rule over that of the best setting, for both algorithms."""
    (run,) = (r for r in runs.find_runs("parameter_grid", "paper") if r.record["point"] == {"case": case})
    wide = {setting["name"]: setting for setting in run.record["study"]["studies"][1]["settings"]}
    assert len(wide) == 160
    table = run.results[run.results["setting"].isin(wide)]
    regret = table.groupby(["setting", "policy"], observed=True)["regret"].sum().unstack("policy")
    ours = [
        name
        for name, s in wide.items()
        if (s["regularization"], s["step_size"], s["radius"]["scale"]) == tuple(RULE.values())
    ]
    assert sorted(wide[name]["norm_bound"] for name in ours) == [10.0, 30.0]
    quoted = re.findall(rf"^\| {case} \| (\d+)% to (\d+)% \| (\d+)% to (\d+)% \|", PAGE, re.MULTILINE)
    found = []
    for policy in ("eofd", "oful"):
        excess = 100 * (regret.loc[ours, policy] / regret[policy].min() - 1)
        assert excess.max() < 12
        assert (regret[policy] / regret[policy].min() > 1.12).mean() > 0.3  # that is no small feat
        found += [f"{excess.min():.0f}", f"{excess.max():.0f}"]
    assert quoted == [tuple(found)]


def played(dimension: int, rewards: tuple[float, ...], norm: float, decay: float, **chosen: float) -> float:
    """Regret of EOFD-MLogB over that of random play, over two games of 600 rounds."""
    problem = Synthetic(dimension=dimension, rewards=rewards, parameter_norm=norm, decay=decay)
    setting = Setting(
        name="a", problem=problem, sketch_size=max(dimension * len(rewards) // 3, 2),
        regularization=chosen["regularization"], step_size=chosen["step_size"],
        norm_bound=chosen["norm_bound"], radius={"kind": "ridge", "scale": chosen["scale"]},
        policies=("eofd", "random"),
    )  # fmt: skip
    games = [
        TrialSpec(experiment="validation", setting=setting, n_rounds=600, seed=77, trial=t).compute()
        for t in range(2)
    ]
    regret = pd.concat(games).groupby("policy", observed=True)["regret"].sum()
    return float(regret["eofd"] / regret["random"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dimension", "rewards", "norm", "decay"),
    [(30, (0.5, 1.0), 10.0, 1.0), (60, (1.0,), 6.0, 0.0), (20, (0.2, 0.6, 1.0), 15.0, 2.0)],
)
def test_on_problems_it_was_not_read_off_the_rule_is_better_than_most_and_not_far_from_the_best(
    dimension, rewards, norm, decay
):
    """Against 24 settings around it: the page says how far, and where the rule loses."""
    problem = (dimension, rewards, norm, decay)
    ours = played(*problem, **RULE, norm_bound=2 * norm)
    others = [
        played(*problem, regularization=a, step_size=e, scale=c, norm_bound=2 * norm)
        for a, e, c in itertools.product((0.1, 1.0, 10.0, 100.0), (0.3, 1.0, 5.0), (1e-4, 1e-2))
    ]
    print(f"{problem}: rule {ours:.3f}, best {min(others):.3f}, median {sorted(others)[12]:.3f}")
    assert ours < 1.6 * min(others)
    assert sum(other >= ours for other in others) >= 12
