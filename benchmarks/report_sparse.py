"""The section of the page about rounds with sparse actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.markdown import markdown, origin

_PLAYERS = {
    "sparse": "EOFD-MLogB, sparse actions",
    "dense": "EOFD-MLogB, dense rows",
    "vowpal wabbit": "Vowpal Wabbit",
}
_STATES = {"new": "few", "all": "all", "movielens": "MovieLens-100k", "insteval": "InstEval"}


def section(few: Mapping[str, Any]) -> list[str]:
    """The paragraphs and tables of the section, computed from the record of the part `sparse`."""
    parts = ["## Sparse actions", _about(few), *_summary(few["times"])]
    parts += [f"Left out: {message}." for message in few["left_out"]]
    parts += [markdown([_cells(row) for row in few["times"]])]
    parts += [_about_memory(few), markdown([_memory_cells(row) for row in few["memory"]])]
    if few["ratings"]:
        parts += ["### Ratings", *_about_ratings(few["ratings"])]
        parts += [markdown([_rating_cells(row) for row in few["ratings"]])]
    return parts


def _about(few: Mapping[str, Any]) -> str:
    plan, environment = few["plan"], few["environment"]
    return (
        f"{environment['cpu']}, one thread, NumPy {environment['numpy']}, numba "
        f"{environment['numba'] or 'absent'}. A round offers {plan['n_actions']} unit vectors with "
        f"{plan['n_nonzeros']} non-zeros each, all sets of features equally likely. "
        "[The notebook on sparse rounds](../notebooks/23_sparse_rounds.md) derives how a policy plays them. "
        "Its time depends on the features that played actions have had: *few*, those of some dozens of "
        "actions when timing begins, or *all*, each of the d features. *Round* is the median over rounds "
        "without a rebuild, quartiles in brackets; *with rebuilds* adds their time, spread over all rounds; "
        "*a rebuild* is the median and the longest of the rounds with one. *× sparse*: how many times longer "
        "than with sparse actions at the same problem, without and with the rebuilds. *× least d*: time over "
        "that of the same player at the smallest d, both ways. All players of the table played in one run, "
        "in interleaved blocks. Vowpal Wabbit plays SquareCB over action-dependent features, with its lines "
        "of text parsed in its calls; it learns a linear model of the cost by stochastic gradients, without "
        "curvature, so the table "
        f"compares times and not regrets. {origin(few)}"
    )


def _summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the table says in short."""
    said = []
    for row in rows:
        if row["player"] == "dense":
            said.append(
                f"{_place(row)} a round with dense rows at d = {row['d']:,} takes {row['over_sparse']:.3g} "
                f"times as long as with sparse actions, {row['over_sparse_with_rebuilds']:.3g} times with "
                "the rebuilds"
            )
    for row in rows:
        if row["player"] == "sparse" and row["over_first"] != 1.0:
            said.append(
                f"{_place(row)} a round at d = {row['d']:,} takes {row['over_first']:.3g} times as long as "
                f"at the smallest d, {row['over_first_with_rebuilds']:.3g} times with the rebuilds"
            )
    compared = [row["equal_actions"] for row in rows if row["equal_actions"] is not None]
    if compared and min(compared) == 1.0:
        said.append("sparse actions and dense rows led to the same choice in every round")
    return ["\n".join(f"- {line[0].upper()}{line[1:]}." for line in said)] if said else []


def _place(row: Mapping[str, Any]) -> str:
    """The state of a row in words."""
    return f"with {_STATES[row['state']]} features played,"


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "features played": _STATES[row["state"]],
        "K, d, m": _size(row),
        "player": _PLAYERS[row["player"]],
        "select (ms)": _spread(row, "select"),
        "update": _spread(row, "update"),
        "round": _spread(row, "round"),
        "with rebuilds": f"{row['with_rebuilds_ms']:.3g}",
        "a rebuild": f"{row['rebuild_ms']:.3g}, {row['longest_rebuild_ms']:.3g}" if row["rebuilds"] else "",
        "× sparse": f"{row['over_sparse']:.3g}, {row['over_sparse_with_rebuilds']:.3g}",
        "× least d": f"{row['over_first']:.3g}, {row['over_first_with_rebuilds']:.3g}",
        "rounds": str(row["rounds"]),
    }


def _about_memory(few: Mapping[str, Any]) -> str:
    return (
        "Bytes of the policy's arrays in 1e6 bytes, by `tracemalloc`: held at the end, and at their peak "
        "over all its rounds and rebuilds. The count is 8 Kd(m+K), and the bytes of one action set."
    )


def _memory_cells(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "features played": _STATES[row["state"]],
        "K, d, m": _size(row),
        "held (MB)": f"{row['held_mb']:.3g}",
        "peak (MB)": f"{row['peak_mb']:.3g}",
        "count (MB)": f"{row['count_mb']:.3g}",
        "peak / count": f"{row['peak_over_count']:.3g}",
        "rebuilds": str(row["rebuilds"]),
    }


def _about_ratings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    said = []
    for row in rows:
        if row["player"] != "dense":
            continue
        few = next(r for r in rows if r["player"] == "sparse" and _problem(r) == _problem(row))
        said.append(
            f"- {_STATES[row['state']]}, m = {row['m']}: a round with dense rows takes "
            f"{row['over_sparse_with_rebuilds']:.3g} times as long as one with sparse actions, the state "
            f"holds {row['held_mb'] / few['held_mb']:.3g} times as much and an action set "
            f"{row['actions_mb'] / few['actions_mb']:.3g} times as much."
        )
    return [
        "The rated problems of [the experiment on real data](../notebooks/experiments/real_data.md), whose "
        "comparison plays dense rows. They have hundreds of features and not millions, and the state of a "
        "sketch of m directions lies in up to K(m+1) of them, so that there is little to save, or nothing: "
        "with as many coordinates as features, a policy plays the features themselves.",
        "\n".join(said),
    ]


def _rating_cells(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "data": _STATES[row["state"]],
        "K, d, m": _size(row),
        "player": _PLAYERS[row["player"]],
        "coordinates": str(row["coordinates"]),
        "round (ms)": _spread(row, "round"),
        "with rebuilds": f"{row['with_rebuilds_ms']:.3g}",
        "× sparse": f"{row['over_sparse']:.3g}, {row['over_sparse_with_rebuilds']:.3g}",
        "state (MB)": f"{row['held_mb']:.3g}",
        "action set (MB)": f"{row['actions_mb']:.3g}",
        "rounds": str(row["rounds"]),
    }


def _problem(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["state"], row["d"], row["m"]


def _size(row: Mapping[str, Any]) -> str:
    return f"{row['K']}, {row['d']}, {row['m']}"


def _spread(row: Mapping[str, Any], part: str) -> str:
    median, low, high = (row[f"{part}_{level}_ms"] for level in ("median", "q25", "q75"))
    return f"{median:.3g} [{low:.3g}, {high:.3g}]"
