"""The audit command: keeps its time, refutes what is false, and says what it could have seen.

False-alarm rate: a true claim is refuted with probability at most 1e-6 per run of the command, and
seeds are fixed.
"""

from __future__ import annotations

import json
import random
import time
from types import SimpleNamespace

import pytest

from dpconvex.audit import audit
from dpconvex.cli.task_options import TASKS
from dpconvex.privacy import GaussianDP

MECHANISMS = """\
import numpy as np

def honest(which, count, rng):
    return which + rng.normal(0, 2.0, count)  # sensitivity 1, mu = 0.5

def careless(which, count, rng):
    return which + rng.normal(0, 1.0, (count, 1))  # half the noise

def slow(which, count, rng):
    import time
    time.sleep(0.02 * count)
    return which + rng.normal(0, 2.0, count)

def broken(which, count, rng):
    raise KeyError("a value of the data")

def short(which, count, rng):
    return rng.normal(size=count - 1)

number = 3
"""


@pytest.fixture
def place(folder, monkeypatch):
    (folder / "audited.py").write_text(MECHANISMS)
    monkeypatch.chdir(folder.path)
    monkeypatch.syspath_prepend(str(folder.path))
    monkeypatch.delitem(__import__("sys").modules, "audited", raising=False)
    return folder


def own(place, name, *more):
    return place.run(
        *(
            "audit",
            "--sampler",
            f"audited:{name}",
            "--mu",
            0.5,
            "--runs",
            20_000,
            "--seed",
            0,
            *more,
        )
    )


def test_a_mechanism_of_the_users_own(place):
    result = own(place, "honest", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["passed"]
    assert found["attacks"]["sampler"]["runs"] == 20_000
    result = own(place, "careless", "--json")
    assert result.exit_code == 4
    attack = json.loads(result.stdout)["attacks"]["sampler"]
    assert not attack["passed"]
    assert attack["provable"] > attack["epsilon_lower_bound"] > attack["epsilon_claimed"]


def test_words_and_picture(place):
    result = own(place, "careless", "--plot", place / "curve.svg")
    assert result.exit_code == 4
    assert "REFUTED" in result.stdout
    assert "The claim is false, except with probability 1e-06" in result.stdout
    picture = (place / "curve.svg").read_text()
    assert picture.startswith("<svg")
    assert "<desc" in picture
    assert "the strongest attack" in picture
    assert "consistent" in own(place, "honest").stdout


def test_time_is_kept_and_too_little_of_it_is_said(place, monkeypatch):
    """By a clock that runs while the sampler sleeps, and only then."""
    clock = [0.0]

    def sleep(seconds):
        clock[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr("dpconvex.cli.audit.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    result = own(place, "slow", "--seconds", 1)
    assert 0 < clock[0] < 1.5
    assert result.exit_code == 2
    assert "needs 100" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--sampler", "audited:none"], "cannot be imported: AttributeError"),
        (["--sampler", "no_such_module:f"], "cannot be imported: ModuleNotFoundError"),
        (["--sampler", "audited"], "MODULE:FUNCTION"),
        (["--sampler", "audited:number"], "is not a function"),
        (["--sampler", "audited:broken"], "failed with KeyError"),
        (["--sampler", "audited:short"], "one output for each"),
        (["--sampler", "audited:honest", "--alpha", 1], "has no option --alpha"),
        (["--sampler", "audited:honest", "--mu", 1, "--epsilon", 1], "either 'mu' or 'epsilon'"),
        (["--confidence", 1.5], "--confidence"),
        (["--seconds", "nan"], "--seconds"),
        (["--task", "tea"], "task must be one of"),
        (["--plot", "none/curve.svg"], "plot cannot be written"),
    ],
)
def test_wrong_options(place, arguments, complaint):
    result = place.run("audit", *arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())
    assert "a value of the data" not in result.output


@pytest.mark.parametrize(
    ("options", "attacks"),
    [
        (["--mechanism", "output", "--alpha", 1], {"mirror", "target", "both"}),
        pytest.param(
            ["--task", "logistic", "--mu", 1],
            {"mirror", "target", "both"},
            marks=pytest.mark.slow,  # every attack is a hundred descents
        ),
        (
            ["--neighbors", "add_or_remove_one", "--nominal-samples", 20, "--mechanism", "output"],
            {"presence, high", "presence, low"},
        ),
    ],
)
def test_estimators_by_task(folder, options, attacks):
    result = folder.run(
        *(
            "audit",
            *options,
            "--runs",
            100,
            "--seconds",
            3600,  # never reached: a busy machine is no reason to fail
            "--seed",
            0,
            "--json",
            "--n-samples",
            4,
        )
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["attacks"]) == attacks
    assert all(attack["runs"] == 100 for attack in found["attacks"].values())


def test_an_estimator_with_too_little_noise_is_caught(folder, monkeypatch):
    from dpconvex.core.noise_source import NoiseSource

    plain = NoiseSource.gaussian
    monkeypatch.setattr(
        NoiseSource, "gaussian", lambda self, std, size: plain(self, std / 20, size)
    )
    result = folder.run(
        *("audit", "--mechanism", "output", "--alpha", 1, "--runs", 150, "--seconds", 3600),
        *("--seed", 0, "--json", "--n-samples", 4, "--delta", 0.01, "--confidence", 0.999),
    )
    assert result.exit_code == 4, result.output
    assert not json.loads(result.stdout)["attacks"]["target"]["passed"]


def test_any_number_of_runs_can_be_audited():
    # Where time ends decides the number; shares of it are rounded.
    def draw(count, rng):
        return rng.normal(size=count)

    for runs in range(100, 200):
        assert audit(draw, draw, GaussianDP(0.5), runs, rng=runs).passed


ODD = [
    "",
    "nan",
    "inf",
    "-1",
    "0",
    "1e-300",
    "1e300",
    "5",
    "0.5",
    "tea",
    "None",
    "\u202e",
    "audited:honest",
    "mine:",
]
FLAGS = [
    "--task",
    "--sampler",
    "--n-samples",
    "--n-features",
    "--seconds",
    "--runs",
    "--confidence",
    "--seed",
    "--epsilon",
    "--delta",
    "--mu",
    "--mechanism",
    "--neighbors",
    "--alpha",
    "--quantile",
    "--kernel",
    "--row-norm",
]


def fuzz_options(place, count, seed):
    rng = random.Random(seed)
    codes = []
    for number in range(count):
        words = ["audit", "--seconds", "0.1", "--runs", "100", "--task", rng.choice(list(TASKS))]
        for flag in rng.sample(FLAGS, rng.choice([1, 1, 2, 3])):
            # Long runs are no fault: a number of seconds is only taken where it is refused.
            odd = [word for word in ODD if flag != "--seconds" or word not in ("5", "1e300")]
            words += [flag, rng.choice(odd)]
        result = place.run(*words)
        label = f"{number} of seed {seed}, {words}: {result.output!r}"
        assert result.exit_code in (0, 2, 4), label
        assert "Traceback" not in result.output, label
        codes.append(result.exit_code)
    assert 2 in codes


# The command line shows a warning as a line; numbers near the ends of float64 may cause one.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_odd_options(place):
    fuzz_options(place, 60, 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(1, 4))
def test_more_odd_options(place, seed):
    fuzz_options(place, 400, seed)
