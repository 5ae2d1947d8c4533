"""Attestations: which code has been shown to reproduce a run.

A record says which code made a run. The code changes afterwards, and the run stays valid as long as the
present code gives the same numbers. `mlogb verify --attest` computes trials again. If nothing contradicts the
run, it adds an entry to ``attestations.json`` beside the record, which says when which code reproduced which
trials, up to which tolerance, and on which machine. The checksums of the run do not cover this file; each
entry has the checksum of the record to which it belongs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compendium.system import paths, provenance
from compendium.system.paths import FailureError
from compendium.system.provenance import ATTESTATIONS, sha256

#: What an entry must have.
_KEYS = {
    "record_sha256", "date", "code_digest", "git_commit", "git_clean", "trials", "computed", "tolerances",
    "computed_on",
}  # fmt: skip


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the attestations of a run, the oldest first.

    Raises
    ------
    FailureError
        If the file cannot be read, holds anything else, or an entry belongs to another record.
    """
    path = folder / ATTESTATIONS
    if not path.is_file():
        return []
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FailureError(f"{ATTESTATIONS} cannot be used: {error}") from None
    if not isinstance(entries, list) or any(not isinstance(one, dict) or _KEYS - set(one) for one in entries):
        raise FailureError(f"{ATTESTATIONS} cannot be used: it has something else than attestations")
    record = sha256(folder / "record.json")
    if any(entry["record_sha256"] != record for entry in entries):
        raise FailureError(f"{ATTESTATIONS} cannot be used: it belongs to another record")
    return entries


def faults(folder: Path) -> list[str]:
    """Return why the attestations of a run cannot be used; empty if they can, or if there are none."""
    try:
        read(folder)
    except FailureError as error:
        return [str(error)]
    return []


def add(
    folder: Path, computed: list[str], trials: int, tolerances: Mapping[str, float], gaps: list[str]
) -> dict[str, Any]:
    """Add an attestation by this code to a run, and merge it with earlier ones by the same code and BLAS.

    Parameters
    ----------
    folder : Path
        The run, which has been verified.
    computed : list of str
        The trials that were computed again.
    trials : int
        How many trials the run has.
    tolerances : mapping
        For each table the tolerance within which all rows agree; 0 if they are equal.
    gaps : list of str
        What could not be checked.
    """
    machine = provenance.computed_on()
    digest = provenance.code_digest()
    before = read(folder)
    same = [
        one
        for one in before
        if one["code_digest"] == digest and one["computed_on"]["blas"] == machine["blas"]
    ]
    everything = len(computed) == trials or any(one["computed"] == "all" for one in same)
    known = {name for one in same if one["computed"] != "all" for name in one["computed"]}
    largest = {
        name: max([value, *(one["tolerances"].get(name, 0.0) for one in same)])
        for name, value in tolerances.items()
    }
    entry = {
        "record_sha256": sha256(folder / "record.json"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "code_digest": digest,
        **provenance.git_state(provenance.code_root()),
        "trials": trials,
        "computed": "all" if everything else sorted({*computed, *known}),
        "tolerances": largest,
        "not_checked": gaps,
        "computed_on": machine,
    }
    entries = [*(one for one in before if one not in same), entry]
    text = json.dumps(entries, indent=2, ensure_ascii=False) + "\n"
    paths.write_atomically(folder / ATTESTATIONS, text)
    return entry


def describe(entry: Mapping[str, Any]) -> str:
    """Return an attestation as a line of text."""
    names = entry["computed"]
    number = entry["trials"] if names == "all" else len(names)
    largest = max(entry["tolerances"].values(), default=0.0)
    how = f"up to {largest:g}" if largest else "exactly"
    code = _commit(entry["git_commit"])
    code += " with changes" if entry["git_clean"] is False else ""
    return f"{code} reproduced {number} of {entry['trials']} trials {how} on {entry['date'][:10]}"


def history(folder: Path, record: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines: which code made a run, which code reproduced it last, and what has changed since."""
    computed_by = record.get("computed_by", record)["git_commit"]
    yield f"computed by {_commit(computed_by)} on {record['started'][:10]}"
    if "computed_by" in record:
        yield f"drawn from its tables by {_commit(record['git_commit'])}"
    if unusable := faults(folder):
        yield from unusable
    elif entries := read(folder):
        present = " (the present code)" if entries[-1]["code_digest"] == provenance.code_digest() else ""
        yield f"{describe(entries[-1])}{present}"
    text = paths.project_root() / record["notebook"]
    if text.is_file() and sha256(text.read_text(encoding="utf-8")) != record["notebook_sha256"]:
        yield f"{record['notebook']} has changed since; --redraw executes it as it is now"


def _commit(name: str | None) -> str:
    return f"commit {name[:9]}" if name else "code without a commit"
