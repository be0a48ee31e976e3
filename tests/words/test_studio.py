"""The studio: every control in a real browser, hostile files, and nobody else is let in."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the studio's server is not installed: dpconvex[studio]")
import uvicorn
from webdriver import BROWSER, DRIVER, Browser

from dpconvex import DPQuantileRegressor, save_model
from dpconvex.inputs.errors import InputError
from dpconvex.privacy import ApproxDP, Ledger
from dpconvex.words.studio import Studio
from dpconvex.words.studio.fragments import Wish, forecast, schema, verified

WISH = {
    "task": "quantile", "rows": 10_000, "columns": 10, "budget": 1.0, "delta": 1e-6, "level": 0.5,
    "per_person": 3, "wanted": 0.05, "kind": "epsilon",
}  # fmt: skip


@pytest.fixture
def studio(tmp_path):
    """A studio with a ledger, served in a thread."""
    ledger = Ledger(tmp_path / "privacy.db", epsilon=2.0, delta=1e-5)
    ledger.charge(ApproxDP(0.5, 1e-6), mechanism="gradient", description="<b>first</b>")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    made = Studio(listener.getsockname()[1], ledger)
    server = uvicorn.Server(uvicorn.Config(made.app(), log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield made
    server.should_exit = True
    thread.join(20)
    listener.close()


def model_file(tmp_path, name="model.json"):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (200, 2))
    model = DPQuantileRegressor(feature_bounds=(0, 1), target_bounds=(0, 2)).fit(X, X.sum(axis=1))
    return save_model(model, tmp_path / name) or tmp_path / name


def ask(studio, method, path, headers=None, body=None):
    with closing(http.client.HTTPConnection("127.0.0.1", studio.port, timeout=60)) as connection:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


def signed_in(studio):
    status, headers, _ = ask(studio, "GET", studio.address.split(str(studio.port))[1])
    assert status == 303
    return {"Cookie": headers["set-cookie"].split(";")[0]}


def test_nobody_else_is_let_in(studio):
    assert ask(studio, "GET", "/")[0] == 403
    assert ask(studio, "GET", "/?token=wrong")[0] == 403
    way = studio.address.split(str(studio.port))[1]
    cookie = signed_in(studio)
    assert ask(studio, "GET", way)[0] == 403  # the token works once
    status, headers, page = ask(studio, "GET", "/", cookie)
    assert status == 200
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "http" not in page.replace("http-equiv", "")  # refers to nothing elsewhere
    assert ask(studio, "GET", "/", {**cookie, "Host": "evil.example"})[0] == 403
    body = json.dumps(WISH)
    assert ask(studio, "POST", "/forecast", cookie, body)[0] == 403  # not from the page
    assert ask(studio, "POST", "/forecast", {"X-Studio": "1"}, body)[0] == 403
    assert ask(studio, "POST", "/forecast", {**cookie, "X-Studio": "1"}, body)[0] == 200
    assert ask(studio, "GET", "/files/server.py", cookie)[0] == 404
    assert ask(studio, "GET", "/files/..%2Fhtml.py", cookie)[0] == 404
    status, _, words = ask(studio, "POST", "/model", {**cookie, "X-Studio": "1"}, b"0" * (17 << 20))
    assert (status, "larger than" in words) == (400, True)


@pytest.mark.parametrize(
    "wrong",
    [{"rows": -1}, {"rows": "many"}, {"columns": None}, {"budget": 1e9}, {"task": "<b>"}, {"delta": float("nan")}],
)  # fmt: skip
def test_wishes_are_checked(wrong):
    with pytest.raises(InputError):
        Wish.parse({**WISH, **wrong})


def test_forecasts_follow_the_sliders():
    def loss(**changed):
        return Wish.parse({**WISH, **changed}).plan().best.excess_risk

    assert loss(budget=0.1) > loss() > loss(budget=5.0)
    assert loss(rows=1000) > loss(rows=100_000)
    for changed in ({}, {"kind": "mu", "budget": 0.3}, {"delta": 0.0}, {"task": "logistic"}):
        found = forecast({**WISH, **changed})
        assert "right answers at even odds" in found
        assert "None" not in found
    assert "A person with 3 rows is promised" in forecast(WISH)


def test_hostile_files_are_words_only(tmp_path):
    for content in (
        b"",
        b"{}",
        b"\x00\xff",
        b"[" * 100_000,
        b'{"format": "<script>alert(1)</script>"}',
    ):
        found = verified(content)
        assert "Not verified." in found["verdict"]
        assert "<script" not in found["verdict"]
        assert found["report"] == ""
        assert str(tmp_path.parent) not in found["verdict"]
    path = model_file(tmp_path)
    good = path.read_bytes()
    assert "Verified." in verified(good)["verdict"]
    edited = good.replace(b'"epsilon": 1.0', b'"epsilon": 0.5')
    assert edited != good
    assert "Not verified." in verified(edited)["verdict"]
    assert 'class="bad"' in schema("[features]\na = 1")
    assert "<b>" not in schema('[features]\n"<b>x</b>" = [0, 1]')
    assert "not valid TOML" in schema("[[[")


@pytest.mark.skipif(not (BROWSER and DRIVER), reason="no chromium and chromedriver")
def test_every_control_in_a_browser(studio, tmp_path):
    browser = Browser()
    try:
        browser.open(studio.address)
        browser.until("document.querySelector('#forecast .big')")
        for name in ("level", "rows", "columns", "budget", "per_person", "wanted"):
            before = browser.run("return document.querySelector('#forecast').innerHTML")
            for place in ("max", "min"):
                browser.run(
                    f"const c = document.querySelector('[name={name}]'); c.value = c.{place};"
                    "c.dispatchEvent(new Event('input', {bubbles: true}))"
                )
                browser.until("!document.querySelector('#forecast').classList.contains('waiting')")
            assert browser.run("return document.querySelector('#forecast').innerHTML") != before, (
                name
            )
            assert not browser.run("return document.querySelector('#forecast .bad')"), name
        for name in ("task", "kind", "delta"):
            count = browser.run(f"return document.querySelector('[name={name}]').length")
            for place in range(count):
                browser.run(
                    f"const c = document.querySelector('[name={name}]'); c.selectedIndex = {place};"
                    "c.dispatchEvent(new Event('input', {bubbles: true}))"
                )
                browser.until("!document.querySelector('#forecast').classList.contains('waiting')")
                assert browser.run("return document.querySelector('#forecast .big')"), name
        browser.click("#tab-schema")
        browser.until("document.querySelector('#schema-result .good')")
        browser.type("#toml", "[nonsense]")
        browser.until("document.querySelector('#schema-result .bad')")
        browser.click("#save")
        browser.click("#tab-ledger")
        browser.until("document.querySelector('#timeline li')")
        assert browser.run("return document.querySelector('#timeline b')") is None  # escaped
        browser.click("#tab-model")
        hostile = model_file(tmp_path, "<img src=x onerror=alert(1)>.json")
        browser.type("#file", str(hostile))
        browser.until("document.querySelector('#verdict .good')")
        browser.until("document.querySelector('#report').srcdoc.includes('Privacy report')")
        hostile.write_text("{}")
        browser.run("document.querySelector('#file').value = ''")
        browser.type("#file", str(hostile))
        browser.until("document.querySelector('#verdict .bad')")
        asked = browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
        assert asked
        assert all(name.startswith((f"http://127.0.0.1:{studio.port}/", "blob:")) for name in asked)
        assert len(browser.picture()) > 10_000
    finally:
        browser.close()


@pytest.mark.skipif(not (BROWSER and DRIVER), reason="no chromium and chromedriver")
def test_a_phone_shows_it_without_scrolling_sideways(studio):
    browser = Browser(width=500, height=900)  # the narrowest window that it opens
    try:
        browser.open(studio.address)
        browser.until("document.querySelector('#forecast .big')")
        wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1]
    finally:
        browser.close()
