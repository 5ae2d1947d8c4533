"""The roofline model: the time of each variant's round over the least time that the machine allows.

A round takes at least max(operations / rate, bytes / bandwidth). The rate is that of a large matrix product.
The bandwidth is that of an array as large as the one which the round passes over, so that for an array that
fits into a cache it is the speed of the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks import counts
from benchmarks.machine import bandwidth, gemm_rate
from benchmarks.variants import LIBRARY
from compendium.experiments.timing import digits


def rates(timings: Iterable[Mapping[str, Any]], gemm_order: int, large_megabytes: int) -> dict[str, Any]:
    """Measure the rate of a matrix product, and the bandwidth at every array size that occurs.

    Parameters
    ----------
    timings : iterable of mapping
        Rows of `timing.rows`.
    gemm_order : int
        Order of the matrix product.
    large_megabytes : int
        Size of a reference array that does not fit into the caches.

    Returns
    -------
    dict
        `gemm_flops` per second, and `bandwidth`: bytes per second by array size in bytes.
    """
    sizes = sorted({array_bytes(row) for row in timings if row["form"] in LIBRARY} | {large_megabytes << 20})
    measured = {size: bandwidth(size) for size in sizes}
    return {
        "gemm_flops": digits(gemm_rate(gemm_order)),
        "gemm_order": gemm_order,
        "bandwidth": {
            str(size): {name: digits(value) for name, value in pair.items()}
            for size, pair in measured.items()
        },
    }


def array_bytes(row: Mapping[str, Any]) -> int:
    """Bytes of the array that a round passes over: B, or one triangle of the inverse."""
    length = row["K"] * row["d"]
    count = length * row["m"] if row["family"] == "eofd" else length**2 / 2
    return max(int(counts.NUMBER * count), 64)


def rows(timings: Iterable[Mapping[str, Any]], measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each variant of the library in the table: counts, limit and distance from it."""
    return [
        _row(row, measured) for row in timings if row["part"] == "table" and row["form"] in LIBRARY
    ]  # fmt: skip


def limit_ms(work: counts.Work, flops: float, bytes_a_second: float) -> tuple[float, str]:
    """The least time in milliseconds, and whether arithmetic or memory limits it.

    Examples
    --------
    >>> limit_ms(counts.Work("", flops=2e9, bytes=1e9), flops=1e9, bytes_a_second=1e9)
    (2000.0, 'arithmetic')
    """
    arithmetic, memory = work.flops / flops * 1e3, work.bytes / bytes_a_second * 1e3
    return max(arithmetic, memory), "arithmetic" if arithmetic >= memory else "memory"


def _row(row: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    speed = max(measured["bandwidth"][str(array_bytes(row))].values())
    result = {key: row[key] for key in ("regime", "K", "d", "m", "family", "form")}
    parts = _operations(row)
    parts["round"] = [*parts["select"], *parts["update"]]
    for name, operations in parts.items():
        work = counts.total(operations)
        least, bound = limit_ms(work, measured["gemm_flops"], speed)
        result |= {
            f"{name}_mflop": digits(work.flops / 1e6),
            f"{name}_mbyte": digits(work.bytes / 1e6),
            f"{name}_limit_ms": digits(least),
            f"{name}_bound": bound,
            f"{name}_times_limit": digits(row[f"{name}_median_ms"] / least),
        }
    return result


def _operations(row: Mapping[str, Any]) -> dict[str, list[counts.Work]]:
    K, d, m = row["K"], row["d"], row["m"]
    chosen = row["offered"], row["evaluated"]
    if row["family"] == "eofd":
        return {
            "select": counts.eofd_select(K, d, m, *chosen),
            "update": counts.eofd_update(K, d, m, row["projected"]),
        }
    return {"select": counts.oful_select(K, d, *chosen), "update": counts.oful_update(K, d, row["projected"])}
