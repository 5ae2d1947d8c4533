"""The results of a run as files: a JSON record, tables as CSV, and a page of Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import report_sparse
from benchmarks.figures import VARIANT_STYLES
from benchmarks.markdown import markdown, origin
from benchmarks.plan import OFUL_LIMITS
from compendium.report.figures_page import WORDS
from compendium.system.paths import FailureError, UsageError, relative, write_atomically
from compendium.system.provenance import relative_paths

RECORD = "bench.json"
SPARSE_RECORD = "sparse.json"
TIME_FIGURE, MAP_FIGURE = "bench_time", "bench_map"
#: The alternative texts of the figures, which their sidecars hold.
ALTERNATIVE_TEXTS = {
    TIME_FIGURE: "Time per round against d at m = 40: printed algorithms, OFUL by Cholesky factors, "
    "strongest OFUL and EOFD, NumPy and compiled",
    MAP_FIGURE: "Map of the time of the strongest OFUL over that of EOFD, over Kd and m, with a line between "
    "the cells where OFUL is faster and those where EOFD is",
}
TABLES = ("timings", "equal_regret", "roofline", "memory")
_TITLES = {"paper": "In the paper's setting", "tuned": "In a setting where curvature matters"}


def write(
    folder: Path,
    record: Mapping[str, Any] | None,
    readme: Path,
    pictures: Path,
    few: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write records, tables and page; return the paths of page and records.

    Parameters
    ----------
    folder : Path
        Where record and tables go; made when it is missing.
    record : mapping or None
        Everything that was measured with dense actions; see `cli.measure`.
    readme : Path
        The page.
    pictures : Path
        Folder of the figures that the page shows.
    few : mapping, optional
        What was measured with sparse actions; see `cli.measure_sparse`.

    Raises
    ------
    FailureError
        If a record names a path of this machine.
    """
    link = Path(relative(pictures.resolve(), readme.parent.resolve())).as_posix()
    records = {RECORD: record, SPARSE_RECORD: few}
    texts = {folder / name: _text(one) for name, one in records.items() if one is not None}
    for name in TABLES:
        if record and record.get(name):
            write_atomically(folder / f"{name}.csv", frame(record, name).to_csv(index=False))
    write_atomically(readme, page(record, link, few))
    for path, text in texts.items():
        write_atomically(path, text)
    return [readme, *texts]


def _text(record: Mapping[str, Any]) -> str:
    """A record as JSON."""
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if relative_paths(text) != text:
        raise FailureError("the record names a path of this machine, which it must not")
    return text


def stored_sparse(folder: Path) -> dict[str, Any] | None:
    """The record of the rounds with sparse actions in a folder, None if there is none."""
    path = folder / SPARSE_RECORD
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(f"{path} cannot be read; measure again") from None
    return found


def frame(record: Mapping[str, Any], name: str) -> pd.DataFrame:
    """One of the record's tables, m as a whole number where there is one."""
    table = pd.DataFrame(record[name])
    for column in ("m", "rank"):
        if column in table:
            table[column] = table[column].astype("Int64")
    return table


def unequal(timings: Sequence[Mapping[str, Any]]) -> list[str]:
    """One sentence for each variant that did not play the actions of the NumPy form in every round."""
    return [
        f"{row['part']} {row['regime']} K={row['K']} d={row['d']}: {_label(row)} played other actions "
        f"than the NumPy form in {1.0 - row['equal_actions']:.1%} of the rounds"
        for row in timings
        if row["equal_actions"] is not None and row["equal_actions"] < 1.0
    ]


def unequal_sparse(few: Mapping[str, Any] | None) -> list[str]:
    """One sentence for each problem at which sparse actions did not lead to the choices of dense rows."""
    rows = [*few["times"], *few["ratings"]] if few else []
    return [
        f"{row['state']} K={row['K']} d={row['d']} m={row['m']}: sparse actions led to other choices than "
        f"dense rows in {1.0 - row['equal_actions']:.1%} of the rounds"
        for row in rows
        if row["equal_actions"] is not None and row["equal_actions"] < 1.0
    ]


def page(record: Mapping[str, Any] | None, pictures: str, few: Mapping[str, Any] | None = None) -> str:
    """The page of results in Markdown, computed from the records.

    Parameters
    ----------
    record : mapping or None
        Everything that was measured with dense actions.
    pictures : str
        The folder of the figures as the page links to it.
    few : mapping, optional
        What was measured with sparse actions.
    """
    parts = _dense_parts(record, pictures) if record else ["# Benchmarks"]
    return "\n\n".join([*parts, *(report_sparse.section(few) if few else [])]) + "\n"


def _dense_parts(record: Mapping[str, Any], pictures: str) -> list[str]:
    parts = ["# Benchmarks", _machine(record), _agreement(record["timings"])]
    parts += [f"Left out: {message}." for message in [*record["left_out"], *_infeasible(record["timings"])]]
    parts += [*_slower_compiled(record["timings"]), *_figures(record, pictures)]
    for regime, title in _TITLES.items():
        rows = [row for row in record["timings"] if row["part"] == "table" and row["regime"] == regime]
        if rows:
            parts += [f"## {title}", _settings_line(record, regime), _timing_table(rows)]
    for build in (_equal_regret, _roofline, _calls, _memory):
        parts += build(record)
    return parts


def _machine(record: Mapping[str, Any]) -> str:
    environment = record["environment"]
    blas = " and ".join(
        dict.fromkeys(
            f"{b['internal_api']} {b['version']} ({b['architecture']})" for b in environment["blas"]
        )
    )
    forced = environment["openblas_coretype"]
    kernel = f"forced to {forced}" if forced else "as it chose"
    limits = record["limits"]
    return (
        f"{environment['cpu']}, one thread; BLAS {blas}, kernel {kernel}; Python {environment['python']}, "
        f"NumPy {environment['numpy']}, SciPy {environment['scipy']}, "
        f"numba {environment['numba'] or 'absent'}. All variants of a row played the same action sets (10 to "
        "30 unit vectors) and outcome uniforms in one process, in interleaved blocks. In each they play "
        f"{limits['lead_in']} rounds that bring their data into the caches, where it is in use, and then "
        f"{limits['block']} that are timed. Times are medians of rounds with a full sketch, quartiles "
        f"in brackets. {_sittings(record)}{origin(record)}"
    )


def _sittings(record: Mapping[str, Any]) -> str:
    sittings = max((row["sittings"] for row in record["timings"] if row["part"] == "table"), default=1)
    if sittings == 1:
        return ""
    return (
        f"The tables of the two settings are played in {sittings} sittings, each from other random streams "
        "and some minutes after the one before, as a slow spell of the machine can last that long. Ratios "
        "are the medians of those of the sittings, the smallest and the largest in brackets. "
    )


def _infeasible(timings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences about the sizes at which an OFUL is left out, because it factors matrices of order Kd."""
    longest = max((row["K"] * row["d"] for row in timings if row["form"] == "printed"), default=0)
    names = {"printed": "as printed", "cholesky": "by Cholesky factors"}
    return [
        f"OFUL {names[form]} beyond Kd = {limit:,}, where factors of order Kd take too long; the ratios to "
        "it are empty there"
        for form, limit in OFUL_LIMITS.items()
        if longest > limit
    ]


def _slower_compiled(timings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence about the compiled OFUL where it is slower than the NumPy form, which favours the sketch."""
    times: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in timings:
        if row["family"] == "oful":
            cell = tuple(row[name] for name in ("part", "regime", "K", "d"))
            times.setdefault(cell, {})[row["form"]] = row["round_median_ms"]
    ratios = {c: t["compiled"] / t["numpy"] for c, t in times.items() if {"compiled", "numpy"} <= set(t)}
    worst = max(ratios, key=lambda cell: ratios[cell], default=None)
    if worst is None or ratios[worst] < 1.05:
        return []
    return [
        "The strongest OFUL is the faster of its NumPy and compiled forms. The compiled one takes up to "
        f"{ratios[worst]:.2f} times as long as the other (K = {worst[2]}, d = {worst[3]}), so what is said "
        "of compiled forms against each other overstates there what sketching saves."
    ]


def _picture(name: str, pictures: str) -> str:
    return f"![{ALTERNATIVE_TEXTS[name]}]({pictures}/{name}.png)"


def _figures(record: Mapping[str, Any], pictures: str) -> list[str]:
    shown = []
    if "curve" in record["parts"]:
        shown += ["## Time against d", _picture(TIME_FIGURE, pictures)]
        said = "Medians of a round at a fixed sketch size, with the quartiles as bands."
        shown.append(f"{said} {WORDS[TIME_FIGURE][1]}")
    if "map" in record["parts"]:
        shown += ["## Where sketching pays", _picture(MAP_FIGURE, pictures)]
        shown.append(
            "How many times longer a round of OFUL with an updated inverse takes, not of the printed one, "
            "than one of EOFD in the same form. A number in parentheses is of a cell where the quartiles of "
            f"the two times overlap. {WORDS[MAP_FIGURE][1]}"
        )
    return shown


def _agreement(timings: Sequence[Mapping[str, Any]]) -> str:
    compared = [row for row in timings if row["equal_actions"] is not None]
    if not compared:
        return "Equal actions: only one form was played, so there was nothing to compare."
    failures = unequal(timings)
    if failures:
        return "**Actions differ**, so the times are not those of the same work:\n\n" + "\n".join(
            f"- {line}" for line in failures
        )
    return f"Equal actions: 100% in all {len(compared)} comparisons with the NumPy form."


def _settings_line(record: Mapping[str, Any], regime: str) -> str:
    described = record["regimes"][regime]
    return (
        f"{described}. *Projected*: share of rounds that end on the sphere of radius S. "
        "*Scored*: actions that pruning left for exact scores, of those offered. How many times longer "
        "another takes: *× printed*, the printed form of the same algorithm, with two SVDs or an "
        "eigendecomposition a round and all actions scored in one batch; *× OFUL printed*; "
        "*× OFUL Cholesky*, OFUL with one Cholesky factor a round; *× OFUL*, OFUL in the same "
        "form, of the library's the strongest."
    )


def _timing_table(rows: Sequence[Mapping[str, Any]]) -> str:
    return markdown(
        [
            {
                "K, d, m": _size(row, rows),
                "variant": _label(row),
                "round (ms)": _spread(row, "round"),
                "select": _spread(row, "select"),
                "update": _spread(row, "update"),
                "× printed": _ratio(row, "over_printed") if row["form"] != "printed" else "",
                "× OFUL printed": _ratio(row, "over_oful_printed") if row["family"] == "eofd" else "",
                "× OFUL Cholesky": _ratio(row, "over_oful_cholesky") if row["form"] != "cholesky" else "",
                "× OFUL": _ratio(row, "over_oful") if row["family"] == "eofd" else "",
                "projected": f"{row['projected']:.0%}",
                "scored": f"{row['evaluated']:.3g} of {row['offered']:.3g}",
                "rounds": row["rounds"],
            }
            for row in rows
        ]
    )


def _equal_regret(record: Mapping[str, Any]) -> list[str]:
    if not record.get("equal_regret"):
        return []
    parts = ["## Time at equal regret"]
    for problem in dict.fromkeys(row["problem"] for row in record["equal_regret"]):
        tried = [row for row in record["equal_regret"] if row["problem"] == problem]
        oful, sketches = tried[0], tried[1:]
        chosen = next((row for row in sketches if row["chosen"]), None)
        ratios = ", ".join(f"{row['over_oful']:.3g} (m = {row['m']})" for row in sketches)
        parts.append(
            f"{problem.capitalize()}, {oful['rounds']} rounds, mean over {oful['trials']} trials: OFUL's "
            f"regret is {oful['regret_mean']:.3g}; EOFD's is, as a multiple of it, {ratios}."
        )
        if chosen is None:
            parts.append("No sketch size tried keeps the regret within 10%.")
            continue
        parts.append(
            f"From m = {chosen['m']} on it stays within 10%. The time of a round at that size beside OFUL's:"
        )
        rows = [row for row in record["timings"] if row["part"] == "regret" and row["regime"] == problem]
        parts.append(_timing_table(rows))
    return parts


def _roofline(record: Mapping[str, Any]) -> list[str]:
    if not record.get("roofline"):
        return []
    text = (
        f"{_rates(record['rates'])} The limit of a round is its counted work at that rate, or "
        "its counted bytes at the bandwidth of an array as large as the one it goes over, whichever takes "
        "longer."
    )
    return ["## How far from the limit", text, _limits_table(record["roofline"]), *_narrow(record)]


def _narrow(record: Mapping[str, Any]) -> list[str]:
    if not record.get("narrow"):
        return []
    text = (
        "The core's vectors have 512 bits. They double the rate of a large matrix product, and with it lower "
        "the limit, but hardly shorten a round at a small size, which waits for one short operation after "
        "another. So the small sizes are measured again as on a processor with vectors of 256 bits, in a "
        "process whose BLAS and compiled kernels keep to the instructions of AVX2 (kernel "
        f"{record['narrow']['architecture']}). {_rates(record['narrow']['rates'])}"
    )
    return ["### With vectors of 256 bits", text, _limits_table(record["narrow"]["roofline"])]


def _rates(rates: Mapping[str, Any]) -> str:
    """A sentence about what the core can do."""
    largest = max(rates["bandwidth"], key=int)
    large = rates["bandwidth"][largest]
    return (
        f"The core multiplies matrices at {rates['gemm_flops'] / 1e9:.3g} Gflop/s and, in an array of "
        f"{int(largest) / 2**20:.0f} MiB, reads {large['read'] / 1e9:.3g} GB/s and updates at "
        f"{large['triad'] / 1e9:.3g} GB/s."
    )


def _limits_table(roofline: Sequence[Mapping[str, Any]]) -> str:
    return markdown(
        [
            {
                "setting": row["regime"],
                "K, d, m": _size(row, roofline),
                "variant": _label(row),
                "Mflop": f"{row['round_mflop']:.3g}",
                "MB": f"{row['round_mbyte']:.3g}",
                "limit (ms)": f"{row['round_limit_ms']:.3g}",
                "set by": row["round_bound"],
                "round / limit": _times(row["round_times_limit"]),
                "select / limit": _times(row["select_times_limit"]),
                "update / limit": _times(row["update_times_limit"]),
            }
            for row in roofline
        ]
    )


def _calls(record: Mapping[str, Any]) -> list[str]:
    if not record.get("calls"):
        return []
    text = (
        "Where a round of the compiled EOFD-MLogB goes at small sizes, in the tuned setting, medians in "
        "microseconds. A choice is one kernel and an update another. *Checks* are those of the arguments "
        "outside the kernels. *Between* is all else: Python, and what "
        "the clocks take. The last two columns divide the round, with and without *between*, by the limit of "
        "the table above."
    )
    limits = {
        (row["K"], row["d"], row["m"]): row["round_limit_ms"] * 1e3
        for row in record.get("roofline", [])
        if (row["regime"], row["family"]) == ("tuned", "eofd") and row["form"] == "compiled"
    }
    rows = []
    for row in record["calls"]:
        limit, kept = limits.get((row["K"], row["d"], row["m"])), row["round_us"] - row["between_us"]
        rows.append(
            {"K, d, m": f"{row['K']}, {row['d']}, {row['m']}"}
            | {name: f"{row[f'{name}_us']:.3g}" for name in ("round", "kernels", "checks", "between")}
            | {"round / limit": _times(limit and row["round_us"] / limit)}
            | {"without between": _times(limit and kept / limit)}
        )
    return ["### Between the calls", text, markdown(rows)]


def _memory(record: Mapping[str, Any]) -> list[str]:
    if not record.get("memory"):
        return []
    text = (
        "Bytes of a policy's arrays in 1e6 bytes, by `tracemalloc`: held after rounds with a full sketch, "
        "and at their peak. The count is 8 Kd(m+K) for EOFD and 8 (Kd)² for OFUL."
    )
    rows = [
        {
            "K, d, m": _size(row, record["memory"]),
            "policy": {"eofd": "EOFD-MLogB", "oful": "OFUL-MLogB"}[row["family"]],
            "held (MB)": f"{row['held_mb']:.3g}",
            "peak (MB)": f"{row['peak_mb']:.3g}",
            "count (MB)": f"{row['count_mb']:.3g}",
            "peak / count": f"{row['peak_over_count']:.3g}",
        }
        for row in record["memory"]
    ]
    return ["## Memory", text, markdown(rows)]


def _label(row: Mapping[str, Any]) -> str:
    return VARIANT_STYLES[row["family"], row["form"]].label


def _size(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """K, d, m of a row; OFUL has no m, so it shows that of the sketches beside it."""
    m = row["m"] or next((r["m"] for r in rows if (r["K"], r["d"]) == (row["K"], row["d"]) and r["m"]), "–")
    return f"{row['K']}, {row['d']}, {m}"


def _spread(row: Mapping[str, Any], part: str) -> str:
    median, low, high = (row[f"{part}_{level}_ms"] for level in ("median", "q25", "q75"))
    return f"{median:.3g} [{low:.3g}, {high:.3g}]"


def _ratio(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None or row["sittings"] == 1:
        return _times(row[name])
    return f"{row[name]:.3g} [{row[f'{name}_min']:.3g}, {row[f'{name}_max']:.3g}]"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
