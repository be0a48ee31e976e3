"""The benchmark: methods promise what they can, comparisons can go either way, runs resume,
pages begin with losses.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpconvex.cli import main
from dpconvex_reproduction.bench import page, problems, run
from dpconvex_reproduction.bench.method import ADD_OR_REMOVE, REPLACE, Budget
from dpconvex_reproduction.bench.methods import MODULES, adassp, find_methods, noisy_gd, tukey
from dpconvex_reproduction.bench.methods import double_noise_newton as newton
from dpconvex_reproduction.bench.methods import objective_perturbation as perturbation
from dpconvex_reproduction.bench.page import contests, write_page
from dpconvex_reproduction.bench.remote import RemoteMethod
from dpconvex_reproduction.drawing import OTHERS
from dpconvex_reproduction.peers.environments import ENVIRONMENTS, PeerEnvironment
from dpconvex_reproduction.runner import run_studies

LOCAL = [
    name for name, (method, _) in find_methods().items() if not isinstance(method, RemoteMethod)
]


@pytest.fixture(scope="module")
def labelled():
    return problems.toy_problem("logistic", rows=600)


@pytest.fixture(scope="module")
def measured():
    return problems.toy_problem("linear", rows=600)


def test_every_asked_method_is_there():
    names = " ".join(find_methods())
    asked = (
        "splines",
        "AUC",
        "DP-EBM",
        "Opacus",
        "jax-privacy",
        "diffprivlib",
        "objective perturbation",
        "AdaSSP",
    )
    for word in (*asked, "boosted", "Tukey", "Theil-Sen", "double-noise Newton"):
        assert word in names
    assert {place for _, place in find_methods().values()} == {*MODULES}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in ("adult", "covtype") else [])
        for name in problems.DATA
        if name != "toy"
    ],
)
def test_attributes_cover_every_column_once(data):
    try:
        loaded = problems.DATA[data][0]()
    except FileNotFoundError:
        pytest.skip("needs DPCONVEX_DATA")
    attributes = problems._blocks(loaded, problems.DATA[data][1])
    assert [column for attribute in attributes for column in attribute.columns] == list(
        range(loaded.X.shape[1])
    )
    low, high = loaded.feature_bounds
    for attribute in attributes:
        if attribute.is_choice:  # at most one indicator is 1
            assert loaded.X[:, list(attribute.columns)].sum(axis=1).max() <= 1
        (first, *_) = attribute.columns
        assert all(low[first] < knot < high[first] for knot in attribute.knots)
        assert list(attribute.knots) == sorted(set(attribute.knots))


@pytest.mark.parametrize("task", ["logistic", "linear", "quantile 0.9"])
def test_local_methods_fit_predict_and_state_their_guarantee(task):
    kind, _, level = task.partition(" ")
    problem = problems.toy_problem(kind, float(level) if level else None, rows=600)
    for name in LOCAL:
        method, _ = find_methods()[name]
        if not method.suits(problem):
            continue
        for relation in method.relations or (ADD_OR_REMOVE,):
            budget = Budget(3.0, 1e-5, relation)
            setting = next(iter(method.settings))
            ((scores, seconds),) = method.run(problem, [(setting, budget, 0)])
            assert scores.shape == problem.y_test.shape
            assert np.isfinite(scores).all()
            assert seconds >= 0
            stated = method.guarantee(problem, budget)
            assert stated == "none" or (relation in stated and "3" in stated)
            found = run.metrics(problem, scores, method.probabilities)
            assert set(found) <= {*problems.TASKS[kind]}


def test_unit_rows_are_no_longer_than_one(labelled):
    wild = np.full((3, 5), 1e9)
    wild[:, 3:] = 0
    for X in (labelled.X, wild):
        assert np.linalg.norm(labelled.unit_rows(X), axis=1).max() <= 1 + 1e-12


def test_theil_sen_takes_one_column_alone(measured):
    method, _ = find_methods()["OpenDP Theil-Sen"]
    assert not method.suits(measured)
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (800, 1))
    bounds = (np.zeros(1), np.full(1, 10.0))
    single = replace(
        measured,
        X=x,
        y=x[:, 0] - 5 + rng.normal(0, 0.1, 800),
        X_test=x[:5],
        y_test=x[:5, 0] - 5,
        row_norm=1.0,
        feature_bounds=bounds,
        attributes=(problems.Attribute("x", (0,), (5.0,)),),
    )
    assert method.suits(single)
    fitted = method.fit(single, Budget(8.0, 1e-6), 0)
    assert abs(fitted.fitted.coef_[0] - 1) < 0.3


@pytest.mark.parametrize("records", [1, 2])
def test_clipped_sums_move_no_further_than_their_noise_is_for(records):
    """Brute force over neighbours; noise for half of the records would be too small for some of
    them.
    """
    rng = np.random.default_rng(4)
    clip = 0.7
    reach = []
    rows = rng.normal(size=(30, 4)) * [1, 3, 0.1, 1]
    targets = rng.choice([-1.0, 1.0], (30, 1))
    theta = rng.normal(size=(4, 1))

    def total(X, y, task):
        slope = noisy_gd.slopes(task, 0.8, y, X @ theta)
        return noisy_gd.clipped_sums(X, np.linalg.norm(X, axis=1), slope, np.array([clip]))

    for task in ("logistic", "linear", "quantile"):
        before = total(rows, targets, task)
        for k in range(30):
            kept = np.arange(30) != k
            others = rows[kept]
            labels = targets[kept]
            if records == 2:  # the worst that can take its place
                others = np.vstack([others, -rows[k]])
                labels = np.vstack([labels, targets[k]])
            reach.append(np.linalg.norm(before - total(others, labels, task)))
    assert records * clip / 2 < max(reach) <= records * clip + 1e-12


@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, REPLACE])
def test_noisy_gradient_descent_spends_its_budget(relation, labelled):
    budget = Budget(1.0, 1e-6, relation)
    clip = 3.0
    steps = 100
    std = noisy_gd._std(budget, steps, clip)
    assert math.sqrt(steps) * budget.records * clip / std == pytest.approx(budget.mu)
    method = noisy_gd.NoisyGradientDescent()
    names = [
        "100 steps, rate 0.3, clip 1",
        "100 steps, rate 1, clip 3",
        "300 steps, rate 0.3, clip 1",
    ]
    together = [scores for scores, _ in method.run(labelled, [(name, budget, 7) for name in names])]
    for name, scores in zip(
        names, together, strict=True
    ):  # a fit is the same, whatever is run beside it
        alone = method.fit(labelled, budget, 7, **method.settings[name]).predict(labelled.X_test)
        np.testing.assert_allclose(scores, alone, rtol=1e-4, atol=1e-4)
    rich = Budget(1e6, 1e-6, relation)
    ((scores, _),) = method.run(labelled, [("300 steps, rate 3, clip 3", rich, 0)])
    assert run.metrics(labelled, scores, True)["accuracy"] > 0.85


def neighbours(rows, targets, records, rng):
    """Yield (rows, targets) of neighbours: one row fewer, or another one in its place."""
    for k in rng.choice(len(rows), 5, replace=False):
        kept = np.arange(len(rows)) != k
        if records == 1:
            yield rows[kept], targets[kept]
        else:
            new = -rows[k] if rng.random() < 0.5 else rng.normal(size=rows.shape[1])
            new = new / np.linalg.norm(new)
            yield np.vstack([rows[kept], new]), np.append(targets[kept], -targets[k])


@pytest.mark.parametrize("records", [1, 2])
def test_moments_and_products_move_no_further_than_their_noise_is_for(records, measured):
    """Sensitivities of AdaSSP by brute force; the noise of half the records would be too small
    for some neighbour.
    """
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(40, 4))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    targets = rng.choice([-1.0, 1.0], 40)
    reach = [
        (
            np.linalg.norm(rows.T @ rows - other.T @ other),
            abs(np.linalg.eigvalsh(rows.T @ rows)[0] - np.linalg.eigvalsh(other.T @ other)[0]),
            np.linalg.norm(rows.T @ targets - other.T @ changed),
        )
        for _ in range(20)
        for other, changed in neighbours(rows, targets, records, rng)
    ]
    moments, eigenvalues, products = (max(values) for values in zip(*reach, strict=True))
    assert moments <= math.sqrt(records) + 1e-12
    assert eigenvalues <= 1 + 1e-12
    assert products <= records + 1e-12
    assert products > records / 2  # half of the noise would not do

    class Recorder:
        def __init__(self):
            self.stds = []

        def normal(self, mean, std, size=None):
            self.stds.append(std)
            return np.zeros(size) if size is not None else 0.0

    mu = 0.7
    seen = Recorder()
    adassp.adassp(rows, targets, mu, records, seen)
    spent = [math.sqrt(records) / seen.stds[0], 1 / seen.stds[1], records / seen.stds[2]]
    assert math.hypot(*spent) == pytest.approx(mu)
    seen = Recorder()
    adassp.boosted_adassp(rows, targets, mu, records, 3, 0.5, seen)
    spent = [
        math.sqrt(records) / seen.stds[0],
        1 / seen.stds[1],
        *(0.5 * records / std for std in seen.stds[2:]),
    ]
    assert math.hypot(*spent) == pytest.approx(mu)
    assert len(seen.stds) == 5


@pytest.mark.parametrize(
    ("epsilon", "jacobian", "ratio"), [(1.0, 0.1, 0.2), (1.0, 0.1, 0.8), (0.1, 0.2, 0.3)]
)
def test_delta_of_objective_perturbation_is_its_integral(epsilon, jacobian, ratio):
    def integrand(z):
        loss = jacobian + ratio**2 / 2 + ratio * abs(z)
        return max(0.0, -math.expm1(epsilon - loss)) * norm.pdf(z)

    corner = max(0.0, (epsilon - jacobian - ratio**2 / 2) / ratio)
    expected = 2 * quad(integrand, corner, corner + 12, epsabs=1e-15)[0]
    assert perturbation.perturbed_delta(epsilon, jacobian, ratio) == pytest.approx(
        expected, rel=1e-6
    )


def test_noise_of_objective_perturbation_is_enough_and_hardly_more():
    for epsilon in (0.1, 1.0, 4.0):
        ratio = perturbation.noise_ratio(epsilon, 1e-6, 0.4 * epsilon)
        assert perturbation.perturbed_delta(epsilon, 0.4 * epsilon, ratio) <= 1e-6
        assert perturbation.perturbed_delta(epsilon, 0.4 * epsilon, 1.02 * ratio) > 1e-6


@pytest.mark.parametrize("clip", [0.3, 1.0])
def test_the_perturbed_minimiser_is_one(clip, labelled):
    rows = labelled.unit_rows(labelled.X)
    rng = np.random.default_rng(0)
    linear = rng.normal(size=rows.shape[1])
    theta = perturbation.minimise(rows, labelled.y, 0.7, clip, linear)
    slopes = np.minimum(1 / (1 + np.exp(labelled.y * (rows @ theta))), clip)
    gradient = -rows.T @ (slopes * labelled.y) + 0.7 * theta + linear
    assert np.linalg.norm(gradient) < 1e-8


def test_newton_directions_move_no_further_than_their_noise_is_for():
    """One row fewer, brute force: the noisy gradient is given, the direction may move by the
    bound and comes close.
    """
    rng = np.random.default_rng(1)
    n = 30
    floor = 0.002
    moved = 1 / (4 * n)
    largest = 0.0
    for _ in range(200):
        rows = rng.normal(size=(n, 3)) * [1, 0.02, 0.02]
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        weights = np.full(n, 0.25)
        weights[1:] = 1e-4  # margins far out but for one row
        hessian = (rows * weights[:, None]).T @ rows / n
        fewer = (rows[1:] * weights[1:, None]).T @ rows[1:] / n
        gradient = rows[0] if rng.random() < 0.5 else rng.normal(size=3)
        gap = np.linalg.solve(hessian + floor * np.eye(3), gradient) - np.linalg.solve(
            fewer + floor * np.eye(3), gradient
        )
        bound = np.linalg.norm(gradient) * moved / (floor * (floor + moved))
        largest = max(largest, np.linalg.norm(gap) / bound)
    assert 0.5 < largest <= 1 + 1e-9


def test_newton_spends_its_budget(monkeypatch, labelled):
    stds = []

    class Recorder:
        def normal(self, mean, std, size):
            stds.append(float(std))
            return np.zeros(size)

    rows = labelled.unit_rows(labelled.X)
    floor = 0.01
    mu = 0.5
    steps = 4
    n = len(rows)
    reaches = []
    solve = np.linalg.solve

    def seen(system, gradient):
        reaches.append(np.linalg.norm(gradient) / (4 * n) / (floor * (floor + 1 / (4 * n))))
        return solve(system, gradient)

    monkeypatch.setattr(np.linalg, "solve", seen)
    newton.newton_steps(rows, labelled.y, mu, steps, floor, Recorder())
    spent = [1 / n / std for std in stds[::2]] + [
        reach / std for reach, std in zip(reaches, stds[1::2], strict=True)
    ]
    assert math.hypot(*spent) == pytest.approx(mu)


def test_boxes_of_depth_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    fits = np.sort(rng.normal(size=(12, 2)), axis=0)
    volumes = np.exp(tukey.log_volumes(fits))
    points = rng.uniform(fits.min(axis=0), fits.max(axis=0), (40_000, 2))
    above = (fits[None] >= points[:, None]).sum(axis=1)
    depth = np.minimum(above, 12 - above).min(axis=1)
    whole = np.prod(fits.max(axis=0) - fits.min(axis=0))
    for level in (1, 2, 3):
        assert volumes[level - 1] == pytest.approx(
            whole * np.mean(depth >= level), abs=0.03 * whole
        )


def test_the_tukey_median_is_deep_and_refuses_collapsed_fits():
    rng = np.random.default_rng(0)
    fits = rng.normal(3.0, 0.1, (400, 2))
    found = tukey.tukey_median(fits, 4.0, 1e-6, rng)
    np.testing.assert_allclose(found, 3.0, atol=0.1)
    spread = np.vstack([rng.normal(0, 1e-9, (210, 2)), rng.normal(0, 1e6, (190, 2))])
    assert tukey.tukey_median(spread, 0.5, 1e-6, rng) is None


def fits_of(method, values, ours=False, setting="", metric="r2", epsilon=1.0, settings=1):
    return [
        {
            "data": "a",
            "task": "linear",
            "method": method,
            "setting": setting,
            "settings": settings,
            "ours": ours,
            "relation": ADD_OR_REMOVE,
            "epsilon": epsilon,
            "delta": 1e-6,
            "seed": seed,
            "guarantee": "a promise",
            "seconds": 1.0,
            metric: value,
        }
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("ours", "peer", "verdict"),
    [
        ([0.5, 0.51, 0.52], [0.7, 0.71, 0.72], "loss"),
        ([0.7, 0.71, 0.72], [0.5, 0.51, 0.52], "win"),
        ([0.5, 0.7, 0.6], [0.55, 0.66, 0.6], "tie"),
        ([0.5], [0.9], "one seed"),
    ],
)
def test_verdicts_follow_the_numbers(ours, peer, verdict):
    (contest,) = contests(fits_of("mine", ours, ours=True) + fits_of("theirs", peer))
    assert contest.verdict == verdict
    assert contest.ahead == pytest.approx(np.mean(ours) - np.mean(peer))


def test_the_limit_is_students():
    (contest,) = contests(
        fits_of("mine", [1.0, 2.0, 3.0], ours=True) + fits_of("theirs", [0.0, 1.0, 2.0])
    )
    assert contest.limit == pytest.approx(2.776445)  # 97.5 % with four degrees of freedom
    assert contest.error == pytest.approx(math.sqrt(2 / 3))


def test_a_peer_is_held_at_its_best_setting_and_the_page_begins_with_losses(tmp_path):
    rows = [
        *fits_of("mine", [0.5, 0.51, 0.52], ours=True),
        *fits_of("theirs", [0.1, 0.1, 0.1], setting="bad", settings=2),
        *fits_of("theirs", [0.7, 0.71, 0.72], setting="good", settings=2),
        *fits_of("weak", [0.1, 0.11, 0.12]),
    ]
    page = write_page(rows, tmp_path, ["other: is not installed"]).read_text()
    losses, ties = page.index("## What we lose (1 of 2)"), page.index("## Ties (0)")
    assert losses < page.index("theirs | 0.71", losses) < ties < page.index("## All means")
    assert "| mine | weak | 0 | 0 | 1 | 0 |" in page
    assert "fingerprint of the default" in page
    assert "other: is not installed" in page


def test_cells_resume_and_a_changed_method_runs_again(tmp_path, monkeypatch):
    plan = run.Plan(("toy",), "linear", ("AdaSSP",), epsilons=(1.0,), seeds=7, rows=300)
    cells = plan.cells()
    assert [cell["seeds"] for cell in cells] == [[0, 5], [5, 7]]
    results = run_studies([run.study(plan)], tmp_path, jobs=1)
    assert len(results.rows["bench"]) == 7
    again = run_studies(
        [run.study(plan)], tmp_path, jobs=1, report=lambda progress: pytest.fail("ran again")
    )
    assert again.rows == results.rows
    run.write_parquet(results.rows["bench"], tmp_path / "results.parquet")
    import polars as pl

    assert pl.read_parquet(tmp_path / "results.parquet")["r2"].len() == 7
    monkeypatch.setattr(run, "digest", lambda place: "another")
    assert all(cell not in cells for cell in plan.cells())


def test_earlier_fits_of_the_same_code_are_kept_and_others_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "code_of", lambda method, place: f"code of {place}")
    path = tmp_path / "results.parquet"
    plan = run.Plan(("toy",))
    facts = {"data": "toy", "most_rows": None, "code": "code of adassp"}
    first = [row | facts for row in fits_of("AdaSSP", [0.1, 0.2])]
    assert run.merged(first, path, plan) == (first, [])
    run.write_parquet(first + [row | facts for row in fits_of("gone", [0.1])], path)
    second = [
        row | facts | {"code": "code of tukey"} for row in fits_of("Tukey median of fits", [0.3])
    ]
    found, left_out = run.merged(second, path, plan)
    assert [(row["method"], row["r2"]) for row in found] == [
        ("AdaSSP", 0.1),
        ("AdaSSP", 0.2),
        ("Tukey median of fits", 0.3),
    ]
    assert left_out == [
        "gone: not among the methods of this run; fits of an earlier run are left out"
    ]
    again, left_out = run.merged([first[0] | {"r2": 0.5}], path, plan)
    assert [row["r2"] for row in again] == [0.5, 0.2]
    monkeypatch.setattr(run, "code_of", lambda method, place: "changed")
    found, left_out = run.merged(second, path, plan)
    assert found == second
    assert "AdaSSP: fits of an earlier run were of other code and are left out" in left_out
    monkeypatch.setattr(run, "code_of", lambda method, place: f"code of {place}")
    assert "of other rows" in " ".join(run.merged(second, path, replace(plan, rows=500))[1])


def test_code_behind_a_fit_is_that_of_its_method_of_the_problems_and_of_the_metrics(monkeypatch):
    method, place = find_methods()["AdaSSP"]
    before = run.code_of(method, place)
    assert before == run.code_of(method, place)
    assert (
        run.code_of(*find_methods()["Tukey median of fits"]).partition("-")[0]
        == before.partition("-")[0]
    )
    assert run.code_of(*find_methods()["dpconvex"]).endswith(f"-{run.fingerprint()}")
    run._common_code.cache_clear()
    monkeypatch.setattr(run, "_MOST_CERTAIN", 20.0)  # log losses are others
    assert run.code_of(method, place) != before
    run._common_code.cache_clear()


def test_a_page_says_at_which_commits_its_fits_were_made(tmp_path):
    rows = [
        row | {"made": made}
        for made in ("commit a on Monday", "commit b on Tuesday")
        for row in fits_of("m", [0.1])
    ]
    text = write_page(rows, tmp_path).read_text(encoding="utf-8")
    assert "Measured at commit a on Monday, commit b on Tuesday. Made at " in text


def test_a_try_does_not_replace_the_whole_table(tmp_path, capsys):
    rows = [row | {"most_rows": None, "code": "c"} for row in fits_of("AdaSSP", [0.1])]
    run.write_parquet(rows, tmp_path / "results.parquet")
    before = (tmp_path / "results.parquet").read_bytes()
    words = ["toy", "--method", "AdaSSP", "--rows", "500", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "bench", *words])
    assert ended.value.code == 2
    assert "has fits of all training rows" in capsys.readouterr().err
    assert (tmp_path / "results.parquet").read_bytes() == before


def test_a_method_that_suits_nothing_is_refused_by_name(tmp_path, capsys):
    words = [
        "toy",
        "--task",
        "linear",
        "--method",
        "dpconvex",
        "--method",
        "diffprivlib",
        "--out",
        str(tmp_path),
    ]
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "bench", *words])
    assert ended.value.code == 2
    assert "'diffprivlib' suits none of these problems. Its tasks: logistic." in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_peer_has_one_colour_on_the_whole_page():
    known = {name: method for name, (method, _) in find_methods().items() if method.relations}
    rows = [
        {"task": task, "method": name, "ours": method.ours}
        for task in ("linear", "quantile", "logistic")
        for name, method in known.items()
        if task in method.tasks
    ]
    colors = page._colors(rows)
    for task in ("linear", "quantile", "logistic"):
        names = {
            page._KINDS.get(row["method"], row["method"])
            for row in rows
            if row["task"] == task and not row["ours"]
        }
        numbers = [colors[name] for name in names]
        assert len({*numbers}) == len(numbers)
        assert max(numbers) < len(OTHERS)


def test_tables_that_were_looked_at_are_marked():
    tables = pytest.importorskip("benchmarks.tables").TABLES
    for data in problems.DATA:
        if data != "toy":
            name = data.partition(" by ")[0]
            assert (tables[name].half == "tuning") == (data in problems.LOOKED_AT), data


def test_ours_run_under_the_relations_of_the_peers(monkeypatch):
    monkeypatch.setattr(run, "fingerprint", lambda: "f")
    asked = run.Plan(
        ("toy",), "logistic", ("dpconvex", "diffprivlib", "Opacus DP-SGD"), epsilons=(1.0,)
    ).cells()
    found = {(cell["method"], cell["relation"]) for cell in asked}
    assert found == {
        ("dpconvex", ADD_OR_REMOVE),
        ("dpconvex", REPLACE),
        ("diffprivlib", REPLACE),
        ("Opacus DP-SGD", ADD_OR_REMOVE),
    }
    with pytest.raises(ValueError, match="There is no method 'nothing'"):
        run.Plan(("toy",), methods=("nothing",)).cells()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "There is no data set"),
        (("toy", "--task", "trees"), "--task must be one of"),
        (("toy", "--epsilon", "x"), "--epsilon takes numbers"),
        (("toy", "--epsilon", "-1"), "--epsilon takes positive numbers"),
        (("toy", "--method", "nothing"), "There is no method"),
        (("toy", "--add", "no-such-file.py"), "There is no file"),
        (("toy", "--task", "linear", "--method", "diffprivlib"), "suits none of these problems"),
    ],
)
def test_wrong_words_are_input_errors(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "bench", *words])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_list_names_data_and_methods(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "bench", "--list", "--json"])
    assert ended.value.code == 0
    listed = json.loads(capsys.readouterr().out)
    assert "adult" in listed["data"]
    assert "AdaSSP" in listed["methods"]


def test_pins_are_exact():
    assert len({environment.name for environment in ENVIRONMENTS}) == len(ENVIRONMENTS)
    assert all("==" in pin for environment in ENVIRONMENTS for pin in environment.pins)
    changed = PeerEnvironment("opacus", ("opacus==0.0",))
    assert changed.home not in {environment.home for environment in ENVIRONMENTS}


@pytest.mark.parametrize(
    "name",
    [name for name, (method, _) in find_methods().items() if isinstance(method, RemoteMethod)],
)
def test_workers_are_asked_in_their_units(name, labelled, monkeypatch):
    method, _ = find_methods()[name]
    asked = {}

    def answer(self, worker, arrays, requests):
        asked.update(worker=worker, arrays=arrays, requests=requests)
        return {
            "scores": np.ones((len(requests), len(arrays["X_test"]))),
            "seconds": np.ones(len(requests)),
        }

    monkeypatch.setattr(PeerEnvironment, "ask", answer)
    budget = Budget(1.0, 1e-6, method.relations[0])
    setting = next(iter(method.settings))
    (scores, seconds), _ = method.run(labelled, [(setting, budget, 3), (setting, budget, 4)])
    assert scores.shape == labelled.y_test.shape
    assert seconds == 1.0
    assert asked["worker"].is_file()
    assert [request["seed"] for request in asked["requests"]] == [3, 4]
    wanted = 1.22314 if name == "diffprivlib" else 1.0  # for which its formula proves 1
    assert all(
        request["epsilon"] == pytest.approx(wanted, rel=1e-5) for request in asked["requests"]
    )
    json.dumps(asked["requests"])
    assert len(asked["arrays"]["X"]) == len(asked["arrays"]["y"]) == 600
    fitted = method.fit(labelled, budget, 0, **method.settings[setting])
    assert fitted.predict(labelled.X_test[:3]).shape == (3,)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["logistic", "linear", "quantile 0.5"])
def test_installed_peers_answer(task):
    kind, _, level = task.partition(" ")
    problem = problems.toy_problem(kind, float(level) if level else None, rows=2000)
    reached = 0
    for method, _ in find_methods().values():
        if isinstance(method, RemoteMethod) and method.suits(problem):
            try:
                method.environment.python()
            except RuntimeError:
                continue
            budget = Budget(8.0, 1e-6, method.relations[0])
            best = list(method.run(problem, [(setting, budget, 0) for setting in method.settings]))
            found = [run.metrics(problem, scores, True) for scores, _ in best]
            metric, larger = next(iter(problems.TASKS[kind].items()))
            values = [each[metric] for each in found]
            worst = {"logistic": 0.6, "linear": 0.3, "quantile": 1.5}[kind]
            assert (max(values) > worst) if larger else (min(values) < worst), (method.name, values)
            reached += 1
    if not reached:
        pytest.skip("no peer is installed")
