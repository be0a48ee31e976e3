"""Certificates: equal facts give equal text, and no field can be edited unnoticed."""

import json
from dataclasses import replace

import pytest

from dpconvex.losses import Hinge, Logistic, Pinball
from dpconvex.mechanisms import ObjectivePerturbation
from dpconvex.privacy import (
    ApproxDP,
    Certificate,
    CertificateError,
    GaussianDP,
    LinearBounds,
    PureDP,
)
from dpconvex.smoothing import GaussianKernel, LogisticKernel, convolve


def facts(**changes):
    loss = convolve(Pinball(0.7), LogisticKernel(), 0.1)
    given = {
        "n_samples": 5000,
        "n_features": 4,
        "loss": loss,
        "row_norm": 1.5,
        "max_norm": 2.0,
        "alpha": 0.02,
    }
    return LinearBounds(**{**given, **changes})


def issue(guarantee=None, seeded=False, **changes):
    parameters = {"quantile": 0.7, "coef_bound": None}
    return ObjectivePerturbation().certify(
        facts(**changes), guarantee or ApproxDP(1.0, 1e-6), parameters, seeded
    )


ISSUED = [
    issue(),
    issue(PureDP(2.0)),
    issue(neighbors="add_or_remove_one"),
    issue(seeded=True),
    issue(loss=Logistic(), fit_intercept=False),
]


@pytest.mark.parametrize("certificate", ISSUED)
def test_issued_certificates_verify_and_survive_json(certificate):
    certificate.verify()
    back = Certificate.from_json(certificate.to_json())
    back.verify()
    assert back.to_json() == certificate.to_json()
    assert back == certificate


def test_equal_facts_give_equal_text():
    assert issue().to_json() == issue().to_json()


def leaves(node, path=()):
    """Yield the path of every plain value in a JSON tree."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from leaves(value, (*path, index))
    else:
        yield path


def edited(value):
    """Return a plausible other value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.001 if value else 1e-9
    if value is None:
        return 1.0
    return {"replace_one": "add_or_remove_one", "floating-point": "exact"}.get(value, value + "x")


def put(tree, path, value):
    *parents, last = path
    for key in parents:
        tree = tree[key]
    tree[last] = value


def get(tree, path):
    for key in path:
        tree = tree[key]
    return tree


ALL_EDITS = [
    (number, path)
    for number, certificate in enumerate(ISSUED)
    for path in leaves(json.loads(certificate.to_json()))
]


@pytest.mark.parametrize(("number", "path"), ALL_EDITS, ids=lambda value: str(value))
def test_every_single_edit_of_the_file_is_refused(number, path):
    tree = json.loads(ISSUED[number].to_json())
    put(tree, path, edited(get(tree, path)))
    with pytest.raises(CertificateError):
        Certificate.from_json(json.dumps(tree)).verify()


def verify_with_repaired_digest(text):
    forged = Certificate.from_json(text)
    object.__setattr__(forged, "digest", forged._hash())
    forged.verify()


def weakened(path, value):
    """Return a value that needs more noise, claims more, or contradicts the others; None where
    any value is as good.
    """
    if path[-1] in ("scale", "sensitivity", "epsilon", "delta", "alpha", "n_samples"):
        return type(value)(value / 2)
    if path[-1] in ("row_norm", "max_norm", "n_features", "dimension", "quantile", "releases"):
        return None if path[-1] == "releases" else value + 1
    if path[-1] in (
        "theorem",
        "mechanism",
        "neighbors",
        "distribution",
        "unit",
        "revision",
        "fit_intercept",
    ):
        return edited(value)
    if path == ("solver_tolerance",):
        return 2 * value
    return None


FORGERIES = [
    (number, path)
    for number, certificate in enumerate(ISSUED)
    for path in leaves(json.loads(certificate.to_json()))
    if path[0] != "parameters"
    and weakened(path, get(json.loads(certificate.to_json()), path)) is not None
]


@pytest.mark.parametrize(("number", "path"), FORGERIES, ids=str)
def test_a_forger_who_repairs_the_digest_is_still_refused(number, path):
    """Without the digest: what the guarantee depends on must hold together by itself."""
    tree = json.loads(ISSUED[number].to_json())
    put(tree, path, weakened(path, get(tree, path)))
    with pytest.raises(CertificateError):
        verify_with_repaired_digest(json.dumps(tree))


@pytest.mark.parametrize("factor", [0.5, 0.999])
@pytest.mark.parametrize("name", ["objective", "release"])
def test_less_noise_than_needed_is_refused(name, factor):
    certificate = issue()
    term = certificate.noise[name]
    noise = {**certificate.noise, name: replace(term, scale=factor * term.scale)}
    with pytest.raises(CertificateError, match="does not suffice"):
        replace(certificate, noise=noise).verify()


def test_more_noise_than_needed_is_fine():
    """A certificate of a version that needed more noise must stay good when a sharper bound is
    found.
    """
    tree = json.loads(issue().to_json())
    tree["noise"]["objective"]["scale"] *= 1.5
    tree["noise"]["release"]["sensitivity"] *= 2.5  # the tilt's grid is coarser, too
    tree["noise"]["release"]["scale"] *= 3
    verify_with_repaired_digest(json.dumps(tree))


def test_unknown_revisions_and_formats_are_not_verified():
    tree = json.loads(issue().to_json())
    for revision in (0, 2, True, 1.0, "1"):
        tree["revision"] = revision
        with pytest.raises(CertificateError, match="Not verified"):
            verify_with_repaired_digest(json.dumps(tree))
    tree["format"] = "dpconvex-certificate-2"
    with pytest.raises(CertificateError, match="Not verified"):
        Certificate.from_json(json.dumps(tree))


def test_stronger_claim_for_the_same_noise_is_refused():
    with pytest.raises(CertificateError, match="noise"):
        replace(issue(), guarantee=ApproxDP(0.9, 1e-6)).verify()
    with pytest.raises(CertificateError, match="noise"):
        replace(issue(), guarantee=ApproxDP(1.0, 1e-7)).verify()


def test_a_more_curved_loss_is_refused():
    loss = convolve(Pinball(0.7), GaussianKernel(), 0.01)
    with pytest.raises(CertificateError):
        replace(issue(), bounds=facts(loss=loss)).verify()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": "other"}',
        "[" * 100_000,
        '{"format": "dpconvex-certificate-1"}',
        "\x00",
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(CertificateError):
        Certificate.from_json(text)


def test_only_known_classes_can_be_named():
    tree = json.loads(issue().to_json())
    tree["bounds"]["loss"]["class"] = "os.system"
    with pytest.raises(CertificateError, match="malformed"):
        Certificate.from_json(json.dumps(tree))


def test_conversions_come_from_the_guarantee():
    certificate = issue()
    assert certificate.epsilon(1e-6) == 1.0
    assert certificate.delta(1.0) == 1e-6


def test_a_users_own_loss_keeps_its_declared_constants():
    class Own:
        kind = "residual"
        lipschitz = 2.0
        smoothness = 3.0

    certificate = issue(loss=Own())
    back = Certificate.from_json(certificate.to_json())
    back.verify()
    assert back.bounds.lipschitz == certificate.bounds.lipschitz


@pytest.mark.parametrize(
    ("changes", "guarantee", "match"),
    [
        ({"loss": Pinball(0.5)}, None, r"Use convolve\(Pinball"),
        ({"loss": Hinge()}, None, r"needs a smooth loss, but Hinge"),
        ({"alpha": 0.0}, None, "alpha above 0"),
        ({"alpha": 1e-7}, None, "larger alpha"),
        ({}, GaussianDP(1.0), "offers PureDP and ApproxDP"),
    ],
)
def test_objective_perturbation_says_what_is_missing(changes, guarantee, match):
    with pytest.raises(ValueError, match=match):
        issue(guarantee, **changes)
