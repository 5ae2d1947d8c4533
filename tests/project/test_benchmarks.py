"""The benchmarks: order, clock, medians, counts, the copied state, and a quick run from end to end."""

from __future__ import annotations

import doctest
import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from benchmarks import (
    calls,
    cli,
    counts,
    figures,
    machine,
    markdown,
    memory,
    plan,
    regret,
    report,
    roofline,
    sparse,
    timing,
    vectors,
)
from benchmarks.plan import Limits, Size
from benchmarks.timing import Log
from benchmarks.variants import FORMS, LIBRARY, Variant, build, missing_forms, take_over
from compendium.system.paths import FailureError
from compendium.system.provenance import sha256
from mlogb_core.environments import ActionSet

ROOT = Path(__file__).resolve().parents[2]
HERE = tuple(form for form in FORMS if form not in missing_forms())

SLOW_FIXTURES = ("quick_run",)  # the whole benchmark, though with few rounds


class FakeClock:
    """Every reading is one later than the last by the next of the given steps."""

    def __init__(self, steps):
        self.steps, self.now, self.readings = steps, 0.0, 0

    def __call__(self):
        self.now += self.steps[self.readings % len(self.steps)]
        self.readings += 1
        return self.now


def cell(K=2, d=9, m=4, regime="tuned", forms=("printed", "numpy")):
    (made,) = plan.table_cells(replace(plan.quick(), table=(Size(K, d, m),), regimes=(regime,)), forms)
    return made


LIMITS = Limits(block=3, lead_in=0, min_rounds=6, max_rounds=6, seconds=0.0, extra_warmup=2)


# Time


def test_quartiles_are_those_of_the_data():
    seconds = [0.009, 0.001, 0.004, 0.002, 0.1]
    assert timing.quartiles(seconds) == {"q25": 2.0, "median": 4.0, "q75": 9.0}


def test_a_round_is_select_and_update_without_what_lies_between():
    # Four readings a round: before and after select, before and after update.
    logs = timing.play(cell(forms=("numpy",)), LIMITS, FakeClock([50.0, 2.0, 70.0, 3.0]))
    for log in logs.values():
        np.testing.assert_allclose(log.select, 2.0)
        np.testing.assert_allclose(log.update, 3.0)
        np.testing.assert_allclose(log.total, 5.0)


def test_rows_hold_medians_quartiles_and_ratios_over_common_rounds():
    one = cell(forms=("printed", "numpy"))
    logs = {
        v: Log(actions=[0] * 4, offered=[9] * 4, evaluated=[3] * 4, projected=[True] * 4)
        for v in one.variants
    }
    times = {
        ("eofd", "printed"): 40.0,
        ("eofd", "numpy"): 4.0,
        ("oful", "printed"): 90.0,
        ("oful", "numpy"): 8.0,
    }
    for variant, log in logs.items():
        log.select, log.update = [1.0] * 4, [times[variant.family, variant.form] - 1.0] * 4
    fast = logs[Variant("eofd", "numpy", 4)]
    fast.select, fast.update = [*fast.select, *[1e3] * 7], [*fast.update, *[1e3] * 7]  # played longer alone
    fast.actions += [0] * 7
    table = {(r["family"], r["form"]): r for r in timing.rows(one, [logs])}
    row = table["eofd", "numpy"]
    assert (row["over_printed"], row["over_oful"]) == (10.0, 2.0)
    assert row["equal_actions"] is None
    assert table["eofd", "printed"]["equal_actions"] == 1.0
    literal = table["eofd", "printed"]
    assert [literal[f"round_{q}_ms"] for q in ("q25", "median", "q75")] == [40e3] * 3
    assert (literal["projected"], literal["offered"], literal["evaluated"]) == (1.0, 9.0, 3.0)


def steady(variants, times):
    """Logs of four rounds whose times are all the given one."""
    return {
        v: Log(
            warmup=2, actions=[0] * 4, select=[0.0] * 4, update=[time] * 4, offered=[9] * 4,
            evaluated=[3] * 4, projected=[False] * 4,
        )
        for v, time in zip(variants, times, strict=True)
    }  # fmt: skip


def test_ratios_are_the_medians_of_those_of_the_sittings():
    one = cell(forms=("printed", "numpy"))
    # In the third sitting the machine is slow for one of the two only.
    sittings = [steady(one.variants, [t, 2.0, 90.0, 8.0]) for t in (20.0, 22.0, 90.0)]
    literal, fast, _, dense = timing.rows(one, sittings)
    assert [fast[f"over_printed{level}"] for level in ("", "_min", "_max")] == [11.0, 10.0, 45.0]
    assert [fast[f"over_oful{level}"] for level in ("", "_min", "_max")] == [4.0, 4.0, 4.0]
    assert (literal["round_median_ms"], fast["rounds"], fast["sittings"], fast["warmup"]) == (22e3, 12, 3, 2)
    assert (dense["over_printed"], dense["over_oful"]) == (11.25, 1.0)


def test_rows_without_a_printed_form_have_no_ratio_to_it():
    one = cell(forms=("numpy",))
    row = timing.rows(one, [steady(one.variants, [2.0, 8.0])])[0]
    assert [row[f"over_printed{level}"] for level in ("", "_min", "_max")] == [None] * 3


def test_each_sitting_has_random_streams_of_its_own():
    one = cell(K=1, d=9, m=4, forms=("numpy",))
    first, again, second = (timing.play(one, LIMITS, sitting=n) for n in (0, 0, 1))
    for variant in one.variants:
        assert first[variant].actions == again[variant].actions
        assert first[variant].actions != second[variant].actions


def test_the_table_is_played_whole_before_it_is_played_again(monkeypatch):
    played = []

    def play(cell, limits, sitting=0):
        played.append((cell.part, cell.name, sitting))
        return steady(cell.variants, range(1, len(cell.variants) + 1))

    monkeypatch.setattr(timing, "play", play)
    record = cli.measure(plan.quick(), [cli.Part.TABLE, cli.Part.CURVE, cli.Part.MAP], quick=True)
    table = [one for one in played if one[0] == "table"]
    assert [n for _, _, n in table] == [0] * 4 + [1] * 4  # two sizes in two regimes
    assert [name for _, name, _ in table[:4]] == [name for _, name, _ in table[4:]]
    assert {n for part, _, n in played if part != "table"} == {0}
    assert {(row["part"], row["sittings"]) for row in record["timings"]} == {
        ("table", 2),
        ("curve", 1),
        ("map", 1),
    }


@pytest.mark.parametrize("n", [1, 2, 5])
def test_every_variant_has_every_place_in_the_order(n):
    variants = list(range(n))
    orders = [timing.rotated(variants, block) for block in range(2 * n)]
    assert all(sorted(order) == variants for order in orders)
    for place in range(n):
        assert sorted(order[place] for order in orders) == sorted(variants * 2)


def test_blocks_are_interleaved_in_rotated_order(monkeypatch):
    played = []
    monkeypatch.setattr(timing, "build", lambda variant, *_: Recorder(variant, played))
    monkeypatch.setattr(timing, "_rank", lambda policy: 0)
    one = cell(forms=("numpy", "compiled"))
    timing.play(one, replace(LIMITS, extra_warmup=0, block=3))
    a, b, c, d = one.variants
    warm = 2 * 4  # m / K rounds of four policies
    assert played[:warm] == [a, b, c, d] * 2
    assert played[warm:] == [v for order in ([a, b, c, d], [b, c, d, a]) for v in order for _ in range(3)]


class Recorder:
    margin = np.inf
    parameter = np.zeros(1)

    def __init__(self, variant, played):
        self.variant, self.played = variant, played

    def select(self, actions):
        self.played.append(self.variant)
        return 0

    def update(self, action, outcome):
        pass


def test_the_first_rounds_of_a_block_are_played_but_not_timed():
    one = cell(forms=("numpy",))
    with_lead_in = timing.play(one, replace(LIMITS, lead_in=2), FakeClock([1.0]))
    for log in with_lead_in.values():  # two blocks
        assert (len(log.lead_in_actions), log.rounds, len(log.select), len(log.update)) == (4, 6, 6, 6)


def test_a_slow_variant_leaves_and_the_others_go_on():
    limits = replace(LIMITS, block=2, min_rounds=2, max_rounds=8, seconds=10.0)
    slow, fast = Log(actions=[0] * 2, select=[6.0] * 2, update=[0.0] * 2), Log(actions=[0] * 2)
    assert timing._is_done(slow, limits)
    assert not timing._is_done(fast, limits)
    assert timing._is_done(Log(actions=[0] * 8), limits)
    assert not timing._is_done(Log(actions=[0], select=[99.0], update=[0.0]), limits)


def test_agreement_counts_the_rounds_that_both_played():
    reference = Log(warmup_actions=[9, 1, 2], actions=[3, 4, 5])
    assert timing.agreement(Log(warmup_actions=[1, 2], actions=[3, 4]), reference) == 1.0
    assert timing.agreement(Log(warmup_actions=[], actions=[3, 0]), reference) == 0.5
    assert timing.agreement(Log(warmup_actions=[1, 0], actions=[3, 4, 5, 6]), reference) == 0.8
    reference.lead_in_actions = [7, 8]
    assert timing.agreement(Log(lead_in_actions=[7, 0, 9], actions=[3, 4]), reference) == 0.75


def test_other_actions_are_reported_and_fail(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(timing, "agreement", lambda log, reference: 0.75)
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments(tmp_path, "--part", "table"))
    assert stopped.value.code == 1
    assert "played other actions than the NumPy form in 25.0% of the rounds" in capsys.readouterr().err
    assert "**Actions differ**" in (tmp_path / "results" / "README.md").read_text()


# The same work


@pytest.mark.parametrize("regime", ["paper", "tuned"])
@pytest.mark.parametrize(("K", "d", "m"), [(1, 12, 4), (3, 8, 7), (2, 5, 10)])
def test_a_printed_copy_scores_and_learns_like_its_model(K, d, m, regime):
    arguments, environment = plan.settings(regime, K, d), plan.problem(regime, K, d)
    rng = np.random.default_rng(3)
    instance = environment.instance(rng)
    for family, form in (("eofd", "printed"), ("oful", "printed"), ("oful", "cholesky")):
        size = m if family == "eofd" else 0
        policy = build(Variant(family, "numpy", size), d, environment.rewards, arguments)
        literal = build(Variant(family, form, size), d, environment.rewards, arguments)
        for _ in range(30):
            candidates = instance.actions(rng)
            action = policy.select(candidates.features)
            policy.update(candidates.features[action], candidates.outcome(action, rng.random()))
        take_over(literal, policy)
        assert literal.rounds == 30
        for _ in range(3):
            candidates = instance.actions(rng)
            expected = policy.scores(candidates.features)
            np.testing.assert_allclose(literal.scores(candidates.features), expected, rtol=1e-9)
            action = policy.select(candidates.features)
            assert literal.select(candidates.features) == action
            outcome = candidates.outcome(action, rng.random())
            for one in (policy, literal):
                one.update(candidates.features[action], outcome)
            np.testing.assert_allclose(literal.parameter, policy.parameter, atol=1e-10)
            assert literal.shrinkage == pytest.approx(policy.curvature.shrinkage, rel=1e-9)


@pytest.mark.parametrize("regime", ["paper", "tuned"])
def test_all_forms_play_the_same_actions_with_a_full_sketch(regime):
    one = cell(K=2, d=20, m=8, regime=regime, forms=HERE)
    for row in timing.rows(one, [timing.play(one, replace(LIMITS, extra_warmup=10))]):
        assert row["equal_actions"] in (None, 1.0)
        assert row["rounds"] == 6
        assert row["rank"] == (8 if row["family"] == "eofd" else None)


def test_an_oful_that_factors_is_left_out_of_large_problems():
    large = cell(K=1, d=plan.OFUL_LIMITS["printed"] + 1, m=5, forms=FORMS)
    assert Variant("oful", "printed") not in large.variants
    assert {Variant("eofd", "printed", 5), Variant("oful", "cholesky"), Variant("oful", "compiled")} <= set(
        large.variants
    )
    larger = cell(K=1, d=plan.OFUL_LIMITS["cholesky"] + 1, m=5, forms=FORMS)
    assert set(large.variants) - {Variant("oful", "cholesky")} == set(larger.variants)


def test_a_missing_package_leaves_the_compiled_form_out(monkeypatch):
    def missing(*_, **__):
        raise ImportError("the compiled form needs numba")

    monkeypatch.setattr("benchmarks.variants.oful", missing)
    assert missing_forms() == {"compiled": "the compiled form needs numba"}


def test_map_has_one_oful_beside_all_sketches_and_no_printed():
    for one in plan.map_cells(plan.full(), FORMS):
        dense = [v for v in one.variants if v.family == "oful"]
        assert [v.form for v in dense] == ["numpy", "compiled"]
        assert all(2 * v.sketch_size <= one.length for v in one.variants)


# Counts


class Counted(np.ndarray):
    """An array whose matrix products are counted."""

    flops = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        plain = [np.asarray(a) for a in inputs]
        result = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul:
            Counted.flops += 2 * plain[0].shape[-1] * np.asarray(result).size
        return result


def test_image_counts_are_those_of_the_products():
    K, d, m, n = 3, 11, 5, 4
    basis, actions = np.ones((m * K, d)).view(Counted), np.ones((n, d)).view(Counted)
    Counted.flops = 0
    actions @ basis.T
    images = {w.name: w for w in counts.eofd_select(K, d, m, 9, n)}["images"]
    assert images.flops == Counted.flops
    assert images.bytes == np.asarray(basis).nbytes
    inverse = np.ones((K * d, K, d)).view(Counted)
    Counted.flops = 0
    for i in range(K):
        actions @ inverse[:, i].view(Counted).T
    dense = {w.name: w for w in counts.oful_select(K, d, 9, n)}["images"]
    assert dense.flops == Counted.flops


def test_the_basis_is_gone_over_as_often_as_the_description_says():
    K, d, m = 2, 10**7, 3  # so long that only whole passes count
    basis = 8 * K * d * m
    select = [w for w in counts.eofd_select(K, d, m, 0, 1) if w.name not in ("logits", "lengths")]
    assert counts.total(select).bytes / basis == pytest.approx(1.0, rel=1e-5)
    assert counts.total(counts.eofd_update(K, d, m, 0.0)).bytes / basis == pytest.approx(6.0, rel=1e-5)
    assert counts.total(counts.eofd_update(K, d, m, 1.0)).bytes / basis == pytest.approx(6.0, rel=1e-5)


def test_leading_orders_of_the_counts():
    def update(K, d, m):
        return counts.total(counts.eofd_update(K, d, m, 0.5)).flops

    assert update(1, 2 * 10**7, 10) / update(1, 10**7, 10) == pytest.approx(2.0, rel=1e-3)
    assert update(8, 10**7, 10) / update(4, 10**7, 10) == pytest.approx(
        4.0, rel=0.15
    )  # K columns of length Kd
    assert update(1, 10, 4000) / update(1, 10, 2000) == pytest.approx(8.0, rel=0.1)
    dense = [counts.total(counts.oful_update(1, d, 0.0)).flops for d in (1000, 2000)]
    assert dense[1] / dense[0] == pytest.approx(4.0, rel=1e-2)
    assert counts.total([]) == ("total", 0, 0)


def test_the_limit_is_the_longer_of_arithmetic_and_memory():
    work = counts.Work("", flops=4e9, bytes=1e9)
    assert roofline.limit_ms(work, 2e9, 1e9) == (2000.0, "arithmetic")
    assert roofline.limit_ms(work, 8e9, 1e9) == (1000.0, "memory")


def test_measured_rates_are_positive_and_at_every_size_needed():
    rows = [
        {"form": "numpy", "family": f, "K": 1, "d": 50, "m": 5, "part": "table"} for f in ("eofd", "oful")
    ]
    measured = roofline.rates(rows, gemm_order=32, large_megabytes=1)
    assert measured["gemm_flops"] > 0
    assert set(measured["bandwidth"]) == {"2000", "10000", str(2**20)}
    assert all(rate > 0 for pair in measured["bandwidth"].values() for rate in pair.values())


def test_memory_is_close_to_the_counts_and_far_from_the_full_matrix():
    size = Size(1, 1500, 10)
    sketch = memory.measure(Variant("eofd", "numpy", 10), size)
    dense = memory.measure(Variant("oful", "numpy"), size)
    for (held, peak), count in ((sketch, counts.eofd_memory(*size)), (dense, counts.oful_memory(1, 1500))):
        assert 0.9 * count < held <= peak < 4 * count
    assert sketch[1] < dense[1] / 10


# Regret


def test_contexts_decay_and_have_norm_one():
    rng = np.random.default_rng(0)
    instance = regret.problems(replace(plan.quick().regret, n_features=50))[0][0].environment.instance(rng)
    assert np.linalg.norm(instance.parameter) == pytest.approx(20.0)
    features = np.vstack([instance.actions(rng).features for _ in range(200)])
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0)
    deviations = features.std(axis=0)
    assert deviations[0] / deviations[9] == pytest.approx(10.0, rel=0.4)


def test_a_size_that_is_good_by_luck_is_not_chosen():
    def chosen(*means):
        return regret.smallest(dict(enumerate(means, start=1)), baseline=1.0)

    assert chosen(1.05, 1.2, 1.1, 1.0) == 3
    assert chosen(1.0, 1.0) == 1
    assert chosen(1.0, 1.3) is None


# From end to end


def arguments(folder, *more):
    return ["--quick", "--results", str(folder / "results"), "--figures", str(folder / "figures"), *more]


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def stored(folder):
    return json.loads((folder / "results" / "bench.json").read_text())


def test_the_record_says_what_was_measured_on_what(quick_run):
    record = stored(quick_run)
    assert record["quick"] is True
    environment = record["environment"]
    assert {"cpu", "numpy", "scipy", "numba", "python", "blas", "openblas_coretype"} <= set(environment)
    assert environment["blas"][0]["architecture"]
    assert record["thread_pools"]
    assert {pool["num_threads"] for pool in record["thread_pools"]} == {1}
    assert len(record["code_digest"]) == len(record["benchmarks_digest"]) == 64
    assert record["limits"]["block"] == 2
    assert record["rates"]["gemm_flops"] > 0
    assert record["duration_seconds"] > 0
    text = (quick_run / "results" / "bench.json").read_text()
    assert str(ROOT) not in text
    assert str(quick_run) not in text


def test_small_sizes_are_measured_with_shorter_vectors_where_there_are_longer_ones(quick_run):
    record = stored(quick_run)
    page = (quick_run / "results" / "README.md").read_text()
    assert ("narrow" in record) == vectors.has_longer() == ("### With vectors of 256 bits" in page)
    if not vectors.has_longer():
        return
    narrow, sizes = record["narrow"], [tuple(size) for size in plan.quick().table[:1]]
    assert narrow["architecture"] == "Haswell"
    assert narrow["rates"] != record["rates"]
    assert [(row["K"], row["d"]) for row in narrow["roofline"]] == [
        (row["K"], row["d"]) for row in record["roofline"] if (row["K"], row["d"]) == sizes[0][:2]
    ]


@pytest.mark.parametrize(
    ("code", "told"), [("raise OSError('no room')", "OSError: no room"), ("exit(3)", "code 3")]
)
def test_another_process_that_fails_is_told(tmp_path, monkeypatch, code, told):
    """The last line that it wrote, or else its exit code."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("")
    (tmp_path / "benchmarks" / "__main__.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FailureError, match=f"256 bits: .*{told}"):
        vectors.measure(1, report.RECORD)


def test_longer_vectors_that_do_not_yield_are_told(tmp_path, monkeypatch):
    """An OpenBLAS that was built for one processor has the same kernels whatever it is told."""
    pools = [{"internal_api": "openblas", "architecture": "SkylakeX"}]
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("")
    (tmp_path / "benchmarks" / "__main__.py").write_text(
        "import pathlib, sys\nfolder = pathlib.Path(sys.argv[sys.argv.index('--results') + 1])\n"
        f"(folder / 'bench.json').write_text({json.dumps({'thread_pools': pools})!r})\n"
    )
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        with pytest.raises(FailureError, match="256 bits: OpenBLAS keeps to SkylakeX"):
            vectors.measure(1, report.RECORD)
    monkeypatch.setattr(vectors, "threadpool_info", lambda: pools)
    assert vectors.has_longer()
    for name, value in vectors.AVX2.items():
        monkeypatch.setenv(name, value)
    assert not vectors.has_longer()  # or the other process would start another one


def test_what_was_measured_is_kept_if_the_other_process_fails(monkeypatch, capsys):
    def play(cell, *_, **__):
        return steady(cell.variants, [1.0] * len(cell.variants))

    def failing(*_):
        raise FailureError("the small sizes with vectors of 256 bits: no room")

    monkeypatch.setattr(timing, "play", play)
    monkeypatch.setattr(roofline, "rates", lambda *_: {})
    monkeypatch.setattr(roofline, "rows", lambda *_: [])
    monkeypatch.setattr(vectors, "has_longer", lambda: True)
    monkeypatch.setattr(vectors, "measure", failing)
    record = cli.measure(plan.quick(), [cli.Part.TABLE, cli.Part.ROOFLINE], quick=True)
    assert len(record["timings"]) > 0
    assert "narrow" not in record
    assert record["left_out"][-1] == "the small sizes with vectors of 256 bits: no room"
    assert "left out: the small sizes with vectors of 256 bits: no room" in capsys.readouterr().err


def test_wrong_requests_measure_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "measure", lambda *_: pytest.fail("something is measured"))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / report.SPARSE_RECORD).write_text("{")
    for more, message in (
        (["--part", "roofline"], "--part roofline divides the times of the table: give --part table, too"),
        (["--part", "table"], "sparse.json cannot be read; measure again"),
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments(tmp_path, *more))
        assert stopped.value.code == 2
        assert message in capsys.readouterr().err


def test_the_record_has_every_variant_with_medians_and_quartiles(quick_run):
    table = report.frame(stored(quick_run), "timings")
    assert set(table["part"]) == {"table", "curve", "map", "regret"}
    assert set(table["form"]) == set(HERE)
    for name in ("select", "update", "round"):
        low, median, high = (table[f"{name}_{level}_ms"] for level in ("q25", "median", "q75"))
        assert ((low > 0) & (low <= median) & (median <= high)).all()
    assert (table.loc[table["form"] != "numpy", "equal_actions"] == 1.0).all()
    sketched = table[table["family"] == "eofd"]
    assert (sketched["rank"] == sketched["m"]).all()
    assert (table["evaluated"] <= table["offered"]).all()
    assert sketched.loc[sketched["form"].isin(LIBRARY), "over_oful"].notna().all()
    for name in ("over_printed", "over_oful_printed", "over_oful_cholesky"):
        assert sketched.loc[sketched["part"] != "map", name].notna().all()


def test_tables_page_and_figures_are_written(quick_run):
    record, results = stored(quick_run), quick_run / "results"
    for name in report.TABLES:
        assert len(pd.read_csv(results / f"{name}.csv")) == len(record[name]) > 0
    page = (results / "README.md").read_text()
    for link in ("bench_time.png", "bench_map.png"):
        assert f"(../figures/{link})" in page
        assert (results / "../figures" / link).is_file()
    assert "Equal actions: 100%" in page
    for title in ("In the paper's setting", "Time at equal regret", "How far from the limit", "Memory"):
        assert f"## {title}" in page
    for name in ("bench_time", "bench_map"):
        sidecar = json.loads((quick_run / "figures" / f"{name}.json").read_text())
        assert sidecar["results_sha256"] == sha256(results / "bench.json")
        for kind, digest in sidecar["sha256"].items():
            assert sha256(quick_run / "figures" / f"{name}.{kind}") == digest


def test_all_forms_stand_beside_the_strongest_in_every_table_of_times(quick_run):
    for part in ("table", "curve", "regret"):
        rows = [row for row in stored(quick_run)["timings"] if row["part"] == part]
        played = {(row["family"], row["form"]) for row in rows}
        assert played == {(f, form) for f in ("eofd", "oful") for form in HERE} - {("eofd", "cholesky")}


def test_the_page_says_where_the_printed_oful_is_left_out(quick_run):
    record = stored(quick_run)
    assert "OFUL as printed beyond" not in report.page(record, "figures")
    large = next(r for r in record["timings"] if r["form"] == "printed") | {
        "d": plan.OFUL_LIMITS["printed"] + 1
    }
    record["timings"].append(large)
    assert "Left out: OFUL as printed beyond Kd = 1,000" in report.page(record, "figures")


def test_the_page_says_where_the_compiled_oful_is_the_slower_one():
    row = {"part": "table", "regime": "paper", "K": 1, "d": 9, "family": "oful"}

    def said(numpy_ms, compiled_ms):
        times = {"numpy": numpy_ms, "compiled": compiled_ms}
        return report._slower_compiled([row | {"form": f, "round_median_ms": t} for f, t in times.items()])

    assert said(10.0, 9.0) == []
    assert "up to 1.30 times as long as the other (K = 1, d = 9)" in said(10.0, 13.0)[0]


def test_the_page_of_a_whole_run_is_the_readme_of_the_benchmarks(quick_run, tmp_path, monkeypatch):
    (tmp_path / "experiments.yml").touch()
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    shutil.copytree(quick_run / "results", tmp_path / "benchmarks" / "results")
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--redraw"])
    assert stopped.value.code == 0
    page = (tmp_path / "benchmarks" / "README.md").read_text()
    assert "(../figures/bench_map.png)" in page
    assert str(tmp_path) not in page
    assert (tmp_path / "figures" / "bench_map.png").is_file()


def test_redrawing_gives_the_same_bytes(quick_run, tmp_path):
    before = {p.name: p.read_bytes() for part in ("results", "figures") for p in (quick_run / part).iterdir()}
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments(quick_run, "--redraw"))
    assert stopped.value.code == 0
    after = {p.name: p.read_bytes() for part in ("results", "figures") for p in (quick_run / part).iterdir()}
    assert after == before
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments(tmp_path, "--redraw"))
    assert stopped.value.code == 2


@pytest.mark.parametrize("text", ["[]", "{}", '{"timings": [{"part": "table"}]}'])
def test_a_record_of_another_version_is_not_redrawn(tmp_path, capsys, text):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / report.RECORD).write_text(text)
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments(tmp_path, "--redraw"))
    assert stopped.value.code == 2
    assert "is not a record of this version; measure again" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [report.RECORD]


# Sparse actions


def seat(name, d=90, **times):
    return sparse.Seat(name, Size(1, d, 3), "new", None, [], 4, sparse.Times(**times))


def test_rebuilds_are_part_of_the_mean_and_not_of_the_median():
    steady = {"select": [0.001] * 4, "update": [0.002] * 4}
    few = seat("sparse", actions=[0] * 6, rebuilds=[0.033], **steady)
    dense = seat("dense", actions=[0, 0, 0, 1], select=[0.01] * 4, update=[0.02] * 4)
    far = seat("sparse", 900, actions=[0] * 6, rebuilds=[0.063], **steady)
    first, second, third = sparse.rows([few, dense, far])
    assert (first["round_median_ms"], first["rebuild_ms"], first["rebuilds"]) == (3.0, 33.0, 1)
    assert (first["rebuild_share_ms"], first["with_rebuilds_ms"]) == (5.0, 8.0)  # (33 - 3) / 6 and 3 + 5
    assert (second["over_sparse"], second["over_sparse_with_rebuilds"]) == (10.0, 3.75)
    assert (third["over_first"], third["over_first_with_rebuilds"]) == (1.0, 13.0 / 8.0)
    assert [row["equal_actions"] for row in (first, second, third)] == [None, 0.75, None]
    record = {"times": [first, second, third], "ratings": []}
    (message,) = report.unequal_sparse(record)
    assert "other choices than dense rows in 25.0%" in message


class Told:
    """A player that plays the action that it is told and notes what it was asked."""

    rebuilds = 0

    def __init__(self):
        self.seen = []

    def prepare(self, candidates):
        return candidates

    def select(self, prepared):
        self.seen.append("select")
        return 1

    def update(self, prepared, action, outcome):
        self.seen.append((action, outcome))
        self.rebuilds += len(self.seen) == 8  # in the fourth round


class Same:
    """A source of one round again and again."""

    def __init__(self, candidates):
        self.candidates, self.taken = candidates, 0

    def take(self, count):
        self.taken += count
        return [(self.candidates, 0.5)] * count


def test_only_the_two_calls_are_timed_and_rebuilds_are_kept_apart():
    candidates = ActionSet(np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0]]))
    told = [sparse.Seat(name, Size(1, 2, 1), "new", Told(), Same(candidates), 4) for name in "ab"]
    sparse.play(told, 2, 1, FakeClock([0.25]))
    for one in told:
        assert len(one.times.actions) == 6  # two blocks of one untimed and two timed rounds
        assert one.player.seen == ["select", (1, 1)] * 6
        assert one.times.select == one.times.update == [0.25] * 4  # the fourth round was not timed
        assert one.times.rebuilds == [0.5]


def test_a_warm_up_has_every_feature_once_or_few():
    chosen = sparse.quick()
    every = list(sparse.warmup(Size(1, 500, 3), "all", chosen))
    assert np.array_equal(np.sort(np.concatenate([action.indices for action, _ in every])), np.arange(500))
    few = list(sparse.warmup(Size(1, 500, 3), "new", chosen))
    assert len(few) == 6
    assert {outcome for _, outcome in every} == {0, 1}


@pytest.mark.sparse_kernels
def test_memory_with_sparse_actions_follows_the_features_that_were_played():
    plan = replace(sparse.SparsePlan(), block=4)
    sparse.memory(Size(1, 5_000, 10), sparse.STATES[-1], plan)  # compiles the kernels, which takes memory too
    few, every = (sparse.memory(Size(1, 50_000, 10), state, plan) for state in sparse.STATES)
    assert few["peak_mb"] < 0.5 * every["peak_mb"]
    assert 1.0 < every["held_mb"] / every["count_mb"] < 1.6
    assert every["rebuilds"] > 0


@pytest.fixture(scope="module")
def sparse_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sparse")
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments(folder, "--part", "sparse"))
    assert stopped.value.code == 0
    return folder


@pytest.mark.slow
def test_the_part_with_sparse_actions_can_be_measured_alone(sparse_run):
    results = sparse_run / "results"
    assert sorted(path.name for path in results.iterdir()) == ["README.md", report.SPARSE_RECORD]
    record, page = report.stored_sparse(results), (results / "README.md").read_text()
    assert record["quick"] is True
    assert {row["equal_actions"] for row in record["times"]} <= {None, 1.0}
    played = {(row["player"], row["state"], row["d"]) for row in record["times"]}
    assert {("sparse", state, d) for state in sparse.STATES for d in (500, 900)} <= played
    assert {("dense", state, 500) for state in sparse.STATES} <= played
    assert "## Sparse actions" in page
    assert "led to the same choice in every round" in page
    assert ("Vowpal Wabbit" in str(record["left_out"])) is (importlib.util.find_spec("vowpalwabbit") is None)


@pytest.mark.slow
def test_the_other_parts_keep_their_section_and_the_page_shows_both(quick_run, tmp_path):
    shutil.copytree(quick_run / "results", tmp_path / "results")
    (tmp_path / "results" / report.SPARSE_RECORD).unlink()
    before = (tmp_path / "results" / report.RECORD).read_bytes()
    with pytest.raises(SystemExit):
        cli.main(arguments(tmp_path, "--part", "sparse"))
    assert (tmp_path / "results" / report.RECORD).read_bytes() == before
    page = (tmp_path / "results" / "README.md").read_text()
    assert page.index("## Memory") < page.index("## Sparse actions")


def test_a_package_that_is_missing_leaves_its_player_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "vowpalwabbit", None)
    with pytest.raises(ImportError):
        sparse.VowpalWabbit(5, [1.0])


def test_lines_can_be_told_apart_and_show_their_spread(quick_run):
    table = report.frame(stored(quick_run), "timings")
    figure = figures.time_against_features(table)
    (axis,) = figure.axes
    looks = {(line.get_marker(), line.get_markerfacecolor(), line.get_color()) for line in axis.lines}
    assert len(looks) == len(axis.lines) == len(axis.collections) == 2 * len(HERE) - 1
    dashes = [tuple(line._unscaled_dash_pattern[1] or ()) for line in axis.lines]
    assert len(set(dashes)) == len(dashes)
    assert axis.get_xlabel() == "features d"
    assert axis.get_ylabel() == "time per round (ms)"


def test_the_map_sets_like_beside_like(quick_run):
    table = report.frame(stored(quick_run), "timings")
    ratios = figures.speedups(table)
    assert (ratios["low"] <= ratios["high"]).all()
    assert set(ratios["form"]) == set(HERE) & set(LIBRARY)
    figure = figures.speedup_map(table)
    assert len(figure.axes) == len(set(HERE) & set(LIBRARY)) + 1  # and the colour bar


def test_the_border_of_the_map_runs_along_edges_between_faster_and_slower_cells():
    values = np.array([[0.5, 2.0, 3.0], [0.4, 0.9, 1.0], [np.nan, 0.2, 5.0]])
    _, axis = plt.subplots()
    figures._line_of_one(axis, np.array([1, 2, 3, 4]), np.array([10, 20, 30, 40]), values)
    black, white = axis.collections
    assert np.array_equal(black.get_segments(), white.get_segments())
    sides = {tuple(map(tuple, side)) for side in white.get_segments()}
    assert sides == {
        ((2, 10), (2, 20)),  # between 0.5 and 2
        ((3, 20), (3, 30)),  # between 0.9 and 1
        ((3, 30), (3, 40)),  # between 0.2 and 5
        ((2, 20), (3, 20)),  # between 2 and 0.9, one above the other
    }
    plt.close("all")


@pytest.mark.parametrize("module", [markdown, plan, regret, roofline])
def test_examples_of_the_docstrings(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_one_thread_is_enforced():
    from threadpoolctl import threadpool_info

    with machine.single_thread():
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}


# -- what is between the calls -----------------------------------------------------------------------------


@pytest.mark.compiled
def test_the_parts_of_a_compiled_round_add_up():
    pytest.importorskip("numba")
    for row in calls.rows([Size(1, 30, 4), Size(2, 30, 4)], warmup=5, n_rounds=40):
        parts = row["kernels_us"], row["checks_us"], row["between_us"]
        assert sum(parts) == pytest.approx(row["round_us"], rel=0.01)
        assert min(parts) > 0


def test_the_page_divides_a_round_and_what_is_not_between_calls_by_its_limit():
    place = {"K": 4, "d": 100, "m": 40}
    names = "round", "kernels", "checks", "between"
    row = place | {f"{name}_us": value for name, value in zip(names, (200, 140, 10, 50), strict=True)}
    limit = place | {"regime": "tuned", "family": "eofd", "form": "compiled", "round_limit_ms": 0.02}
    table = report._calls({"calls": [row], "roofline": [limit]})[-1]
    assert table.splitlines()[-1] == "| 4, 100, 40 | 200 | 140 | 10 | 50 | 10 | 7.5 |"
