"""The studio: every control in a real browser, and what it refuses."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from contextlib import closing

import pytest
import typer

pytest.importorskip("starlette", reason="the studio's server is not installed: dpconvex[studio]")
import uvicorn
from webdriver import BROWSER, DRIVER, Browser

from dpconvex.cli.plan_studio import studio as studio_command
from dpconvex.fit import fit_plan
from dpconvex.inputs import InputError
from dpconvex.planning import excess_and_prescriptions, planner
from dpconvex.reports.studio_pages import TASKS, StudioFitRequest, studio_forecast
from dpconvex.reports.studio_server import studio_app

WISH = {
    "task": "quantile", "rows": 10_000, "columns": 10, "budget": 1.0, "delta": 1e-6, "level": 0.5,
    "per_person": 3, "wanted": 0.05, "kind": "epsilon",
}  # fmt: skip


@pytest.fixture
def studio():
    """A studio's port, served in a thread."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    port = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(studio_app(port), log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield port
    server.should_exit = True
    thread.join(20)
    listener.close()


def ask(studio, method, path, headers=None, body=None):
    with closing(http.client.HTTPConnection("127.0.0.1", studio, timeout=60)) as connection:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_other_hosts_and_large_requests_are_refused(studio):
    body = json.dumps(WISH)
    assert ask(studio, "POST", "/forecast", body=body)[0] == 200
    for host in ("evil.example", "127.0.0.1"):
        assert ask(studio, "POST", "/forecast", {"Host": host}, body)[0] == 403
        assert ask(studio, "GET", "/", {"Host": host})[0] == 403
    status, _, words = ask(studio, "POST", "/forecast", body=b"0" * (1 << 17))
    assert (status, "larger than" in words) == (400, True)
    for sent in ("{", "[]", json.dumps({**WISH, "rows": -1})):
        assert ask(studio, "POST", "/forecast", body=sent)[0] == 400


def test_the_page_refers_to_nothing_elsewhere(studio):
    status, headers, page = ask(studio, "GET", "/")
    assert status == 200
    assert "set-cookie" not in headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "http" not in page.replace("http-equiv", "")
    for name in ("server.py", "..%2Fhtml.py", "%2Fetc%2Fpasswd", "studio.js%00", "..", "."):
        assert ask(studio, "GET", f"/files/{name}")[0] == 404


@pytest.mark.parametrize("port", [99999, -1])
def test_a_port_that_there_is_not_is_refused_as_such(port, capsys):
    """It spoke of budgets that are too large."""
    with pytest.raises(typer.Exit):
        studio_command(port, False)
    assert "--port must be from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [{"rows": -1}, {"rows": "many"}, {"columns": None}, {"budget": 1e9}, {"task": "<b>"}, {"delta": float("nan")}],
)  # fmt: skip
def test_wishes_are_checked(wrong):
    with pytest.raises(InputError):
        StudioFitRequest.parse({**WISH, **wrong})


def test_forecasts_follow_the_sliders():
    def loss(**changed):
        return StudioFitRequest.parse({**WISH, **changed}).plan().best.excess_risk

    assert loss(budget=0.1) > loss() > loss(budget=5.0)
    assert loss(rows=1000) > loss(rows=100_000)
    for changed in ({}, {"kind": "mu", "budget": 0.3}, {"delta": 0.0}, *({"task": task} for task in TASKS)):
        found = studio_forecast({**WISH, **changed})
        assert "right answers at even odds" in found
        assert "None" not in found
        words = {"linear": "squared error", "logistic": "logistic loss", "newsvendor": "extra cost"}
        wanted = words.get(changed.get("task"), "")
        assert wanted in found
        assert ("pinball" in found) == (changed.get("task", "quantile") == "quantile")


def test_a_forecast_calibrates_each_point_once(monkeypatch):
    """What made forecasts slow: 5,000 calibrations, of mechanisms that a default fit does not run."""
    planned = []
    original = fit_plan.plan_fit
    monkeypatch.setattr(planner, "plan_fit", lambda *facts: planned.append(facts) or original(*facts))
    monkeypatch.setattr(excess_and_prescriptions, "calibrate", lambda *_: pytest.fail("not of a default fit"))
    for task in TASKS:
        planned.clear()
        studio_forecast({**WISH, "task": task, "rows": 4321})
        assert len(planned) <= 12
        planned.clear()
        studio_forecast({**WISH, "task": task, "rows": 4321})
        assert planned == []  # kept


def test_the_needed_budget_reaches_the_wanted_loss():
    wish = {**WISH, "wanted": 0.02}
    text = studio_forecast(wish)
    needed = float(re.search(r'id="needed">an epsilon of about ([\d.e-]+)<', text)[1])
    reached = StudioFitRequest.parse({**wish, "budget": needed}).plan().best.excess_risk
    assert 0.02 / 1.3 < reached < 0.02 * 1.3
    assert "A person with 3 rows is promised" in studio_forecast(WISH)


@pytest.mark.skipif(not (BROWSER and DRIVER), reason="no chromium and chromedriver")
def test_every_control_in_a_browser(studio):
    browser = Browser()
    try:
        browser.open(f"http://127.0.0.1:{studio}/")
        browser.until("document.querySelector('#forecast .big')")
        # Asked for and looked at in one script: no answer can be there yet, and no old number is to be seen.
        told = browser.run(
            "const c = document.querySelector('[name=rows]'); c.value = 5; c.dispatchEvent(new Event('input',"
            "{bubbles: true})); const f = document.querySelector('#forecast');"
            "return [f.getAttribute('aria-busy'), getComputedStyle(f.querySelector('.big')).visibility,"
            "getComputedStyle(f, '::before').content]"
        )
        assert told[:2] == ["true", "hidden"]
        assert "Computing" in told[2]
        browser.until("!document.querySelector('#forecast').classList.contains('waiting')")
        for name in ("level", "rows", "columns", "budget", "per_person", "wanted"):
            before = browser.run("return document.querySelector('#forecast').innerHTML")
            for place in ("max", "min"):
                browser.run(
                    f"const c = document.querySelector('[name={name}]'); c.value = c.{place};"
                    "c.dispatchEvent(new Event('input', {bubbles: true}))"
                )
                browser.until("!document.querySelector('#forecast').classList.contains('waiting')")
            assert browser.run("return document.querySelector('#forecast').innerHTML") != before, name
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
        asked = browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
        assert asked
        assert all(name.startswith(f"http://127.0.0.1:{studio}/") for name in asked)
        assert len(browser.picture()) > 10_000
    finally:
        browser.close()


@pytest.mark.skipif(not (BROWSER and DRIVER), reason="no chromium and chromedriver")
def test_a_phone_shows_it_without_scrolling_sideways(studio):
    browser = Browser(width=500, height=900)  # the narrowest window that it opens
    try:
        browser.open(f"http://127.0.0.1:{studio}/")
        browser.until("document.querySelector('#forecast .big')")
        wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1]
        heights = "return [...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)"
        for width in (390, 1280):
            browser.narrow(width)
            assert min(browser.run(heights)) >= 11  # pixels of a line, of letters of about 10
    finally:
        browser.close()
