"""Tuning on one budget: every policy, at every amount of memory, chooses from the same grid of parameters.

A comparison of policies at parameters that suit one of them says little of the others. Here all of them play
the whole grid on validation streams, each keeps the point where its own regret is least, and only that point
is reported, on other streams. Policies with the same amount of memory share the settings of the grid, so that
the contexts of a trial are drawn once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from compendium.experiments.problems import AnyProblem
from compendium.experiments.setting import Setting


class Group(NamedTuple):
    """Policies that have the same amount of memory.

    Attributes
    ----------
    label : str
        The amount in words, such as "m = 5".
    policies : tuple of str
        Their names in `compendium.experiments.policies`.
    sketch_size : int
        m; policies without a sketch do not read it.
    parameters : mapping
        Own parameters of the policies, as a `Setting` takes them.
    """

    label: str
    policies: tuple[str, ...]
    sketch_size: int = 1
    parameters: Mapping[str, dict[str, Any]] = {}


class Point(NamedTuple):
    r"""A point of the grid: :math:`\lambda`, :math:`\eta` and the scale c of :math:`\beta = c\lambda S^2`."""

    regularization: float
    step_size: float
    radius_scale: float

    def __str__(self) -> str:
        return f"λ = {self.regularization:g}, η = {self.step_size:g}, c = {self.radius_scale:g}"


class Candidate(NamedTuple):
    """A group at a point of the grid, as a setting."""

    group: Group
    point: Point
    setting: Setting


def candidates(
    name: str, problem: AnyProblem, groups: Sequence[Group], points: Sequence[Point], *, norm_bound: float
) -> list[Candidate]:
    """The whole grid for every group.

    Parameters
    ----------
    name : str
        Name of the problem, with which the names of the settings begin.
    problem : Problem
        What is played.
    groups : sequence of Group
        Who plays, with distinct labels.
    points : sequence of Point
        The grid.
    norm_bound : float
        S.

    Returns
    -------
    list of Candidate
        Group by group; their settings have the ending ", tuning".
    """
    return [
        Candidate(
            group,
            point,
            Setting(
                name=f"{name}, {group.label}, {point}, tuning",
                problem=problem,
                sketch_size=group.sketch_size,
                regularization=point.regularization,
                step_size=point.step_size,
                norm_bound=norm_bound,
                radius={"kind": "ridge", "scale": point.radius_scale},
                policies=group.policies,
                parameters=dict(group.parameters),
            ),
        )
        for group in groups
        for point in points
    ]


def by_group(final_regret: pd.DataFrame, played: Sequence[Candidate]) -> pd.DataFrame:
    """Regret by what was tuned.

    Parameters
    ----------
    final_regret : DataFrame
        `Results.final_regret` of the settings of the candidates.
    played : sequence of Candidate
        The candidates, or what `tuned` made of them.

    Returns
    -------
    DataFrame
        Columns group, point, policy, trial, regret.
    """
    places = {one.setting.name: one for one in played}
    table = final_regret.astype({"setting": str, "policy": str})
    found = [places[name] for name in table["setting"]]
    return pd.DataFrame(
        {
            "group": [one.group.label for one in found],
            "point": [str(one.point) for one in found],
            **{name: table[name].to_numpy() for name in ("policy", "trial", "regret")},
        }
    )


def tuned(tried: Sequence[Candidate], final_regret: pd.DataFrame) -> list[Candidate]:
    """For every policy of every group the point with the least mean regret; a tie goes to the first point.

    Parameters
    ----------
    tried : sequence of Candidate
        The grid.
    final_regret : DataFrame
        Its `Results.final_regret`.

    Returns
    -------
    list of Candidate
        In the order of the grid. Policies of a group that chose the same point share a setting, and have in
        it no other company.
    """
    table = by_group(final_regret, tried)
    means: dict[tuple[str, str], dict[str, float]] = {}
    for key, part in table.groupby(["group", "policy", "point"], sort=False)["regret"]:
        label, policy, point = map(str, key)
        means.setdefault((label, policy), {})[point] = float(part.mean())
    best: dict[str, list[str]] = {}
    for (label, policy), own in means.items():
        point = min(own, key=own.__getitem__)
        best.setdefault(f"{label}, {point}", []).append(policy)
    return [
        _among(one, best[f"{one.group.label}, {one.point}"])
        for one in tried
        if f"{one.group.label}, {one.point}" in best
    ]


def _among(one: Candidate, policies: Sequence[str]) -> Candidate:
    """A candidate in which only some policies play, under a name of its own."""
    parameters = {name: given for name, given in one.group.parameters.items() if name in policies}
    changes = {
        "name": one.setting.name.removesuffix(", tuning"),
        "policies": tuple(policies),
        "parameters": parameters,
    }
    return one._replace(setting=Setting.model_validate(one.setting.model_dump() | changes))
