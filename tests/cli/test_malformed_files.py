"""Malformed files, fuzzed: no traceback, no hang, no data value in a message.

Each file is a valid one after one to three random mutations, drawn from a fixed seed. The secrets
are values of the data; a command that shows one of them, in whatever state the file is, fails.
"""

from __future__ import annotations

import copy
import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import BOUNDS, Folder

SECRET_TEXT = "SECRETVALUE"
SECRET_NUMBER = "7777123"
SECONDS = 600  # a hang is interrupted and fails; tests of hostile files count how much work is done
ODD = [
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "-0",
    "0x10",
    "1_000",
    "1,5",
    "9" * 400,
    "1e-400",
    "true",
    "null",
    "'",
    '"',
    '""',
    "a\tb",
    "\x00",
    "\ufffd",
    "é",
    "𝟙",
    "[",
    "{",
    "1;2",
    "=1+1",
    "1e308",
    "-1e308",
    "2024-01-01",
    "None",
    "#",
    "\\",
    "\u202e",
    "%s%n",
    "../../etc",
]


def bytes_cut(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def bytes_flipped(raw: bytes, rng: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 8])):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def bytes_random(raw: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice([0, 1, 2, 7, 100, 5000]))


def bytes_inserted(raw: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(raw) + 1)
    signs = [b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b"'", b"\n", b"\r", b",", b"\x1b[31m"]
    long = [b"[" * 3000, b"{" * 3000, b"," * 500, b"\n" * 500]
    junk = rng.choice([*signs, *long, rng.randbytes(4)])
    return raw[:place] + junk + raw[place:]


def bytes_moved(raw: bytes, rng: random.Random) -> bytes:
    a, b = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
    return rng.choice([raw[:a] + raw[b:], raw[:b] + raw[a:b] + raw[b:], raw[a:] + raw[:a]])


def bytes_encoded(raw: bytes, rng: random.Random) -> bytes:
    text = raw.decode("utf-8", errors="replace").replace("a", "ä")
    return text.encode(rng.choice(["latin-1", "utf-16", "utf-32", "cp500"]), errors="replace")


def lines_changed(raw: bytes, rng: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    place = rng.randrange(len(lines) + 1)
    changes: list[Callable[[], list[bytes]]] = [
        lambda: lines[:place] + lines[place + 1 :],
        lambda: lines[1:],
        lambda: lines[:1],
        lambda: lines[:place] + lines[place : place + 1] * 2 + lines[place + 1 :],
        lambda: [line.replace(b"\n", b"\r") for line in lines],
        lambda: lines[::-1],
    ]
    return b"".join(rng.choice(changes)())


def cells_changed(raw: bytes, rng: random.Random) -> bytes:
    rows = [line.split(b",") for line in raw.split(b"\n")]
    row = rng.choice(rows)
    place = rng.randrange(len(row))
    odd = rng.choice(ODD).encode("utf-8")
    changes: list[Callable[[], object]] = [
        lambda: row.__setitem__(place, odd),
        lambda: row.__setitem__(place, odd),
        lambda: row.append(odd),
        lambda: row.pop(place),
        lambda: rows[0].__setitem__(rng.randrange(len(rows[0])), rng.choice(rows[0])),
        lambda: [cells.append(cells[0]) for cells in rows],
    ]
    rng.choice(changes)()
    return b"\n".join(rng.choice([b",", b",", b",", b";", b"\t"]).join(cells) for cells in rows)


def words_changed(raw: bytes, rng: random.Random) -> bytes:
    words = raw.split(b" ")
    words[rng.randrange(len(words))] = rng.choice(ODD).encode("utf-8")
    return b" ".join(words)


def node_changed(raw: bytes, rng: random.Random) -> bytes:
    """Change one place of a JSON tree: another value, key or type, a repetition, deep nesting."""
    try:
        tree = json.loads(raw)
    except (ValueError, RecursionError):
        return raw[:-1]
    places: list[tuple[object, object]] = []

    def walk(node: object) -> None:
        keys = (
            node.keys()
            if isinstance(node, dict)
            else range(len(node))
            if isinstance(node, list)
            else ()
        )
        for key in list(keys):
            places.append((node, key))
            walk(node[key])  # type: ignore[index]

    walk(tree)
    if not places:
        return raw[:-1]
    holder, key = rng.choice(places)
    old = holder[key]  # type: ignore[index]
    odd: list[object] = [
        None,
        True,
        0,
        -1,
        1,
        2,
        1e308,
        5e-324,
        10**400,
        10**15,
        -0.5,
        "x" * 5000,
        "inf",
        [],
        {},
        [[]],
        [1e9] * 50,
        {"class": "Pinball", "quantile": 0.5},
        {"class": "GaussianKernel", "dim": 10**9},
        {"class": "os.system"},
        "__class__",
        old if not isinstance(old, float) else old * 1.01,
        [copy.deepcopy(old)],
        rng.choice(ODD),
    ]
    if rng.random() < 0.15:
        del holder[key]  # type: ignore[attr-defined]
    elif rng.random() < 0.1 and isinstance(holder, dict):
        holder[rng.choice(ODD)] = old
    else:
        holder[key] = rng.choice(odd)  # type: ignore[index]
    text = json.dumps(tree)
    if rng.random() < 0.05:
        text = text.replace("{", '{"format": "dpconvex-model-1", ', 1)
    if rng.random() < 0.05:
        text = text.replace("0.", rng.choice(["NaN", "Infinity", "1e999", "[" * 20000]), 1)
    return text.encode()


ANY = [bytes_cut, bytes_flipped, bytes_random, bytes_inserted, bytes_moved, bytes_encoded]
MUTATIONS = {
    "csv": [*ANY, lines_changed, cells_changed, cells_changed, cells_changed, cells_changed],
    "toml": [*ANY, lines_changed, lines_changed, words_changed, words_changed, words_changed],
    "json": [*ANY, node_changed, node_changed, node_changed, node_changed, node_changed],
}
COMMANDS = {
    "csv": [
        ("fit", "bad.csv", "--feature-bounds", "bounds.toml", "--out", "out.json"),
        ("fit", "bad.csv", "--feature-bounds", "bounds.toml", "--out", "out.json", "--json"),
        (
            "fit",
            "bad.csv",
            "--feature-bounds",
            "bounds.toml",
            "--out",
            "out.json",
            "--report",
            "out.html",
        ),
        ("predict", "model.json", "bad.csv", "--out", "out.csv"),
        ("bounds", "init", "bad.csv"),
        ("verify", "bad.csv"),
        ("certify", "--n-samples", "9", "--feature-bounds", "bad.csv"),
    ],
    "toml": [
        ("certify", "--n-samples", "100", "--feature-bounds", "bad.toml"),
        ("certify", "--n-samples", "100", "--feature-bounds", "bad.toml", "--json"),
        ("fit", "sales.csv", "--feature-bounds", "bad.toml", "--out", "out.json"),
    ],
    "json": [
        ("verify", "bad.json"),
        ("verify", "bad.json", "--json"),
        ("predict", "bad.json", "sales.csv", "--out", "out.csv"),
        ("report", "bad.json", "--out", "out.html"),
        ("report", "bad.json", "--out", "out.html", "--json"),
    ],
}


def secret_table(rows: int) -> str:
    """Return a table whose every row but the header holds the secrets."""
    rng = random.Random(1)
    lines = ["day,temperature,price,city,note,amount,demand"]
    for day in range(rows):
        numbers = f"{rng.uniform(0, 30):.2f},{rng.uniform(0, 9):.2f}"
        city = rng.choice(["berlin", "paris", SECRET_TEXT])
        amount = rng.choice([SECRET_NUMBER, "1.5"])
        lines.append(f"{day},{numbers},{city},{SECRET_TEXT},{amount},{rng.uniform(0, 100):.1f}")
    return "\n".join(lines) + "\n"


def malformed(kind: str, raw: bytes, count: int, seed: int) -> Iterator[bytes]:
    rng = random.Random(f"{kind} {seed}")
    for _ in range(count):
        bad = raw
        for _ in range(rng.choice([1, 1, 2, 3])):
            bad = rng.choice(MUTATIONS[kind])(bad, rng)
        yield bad


@contextmanager
def interrupted() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def attack(kind: str, count: int, seed: int, path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Folder(path)
    (folder / "bounds.toml").write_text(BOUNDS)
    (folder / "sales.csv").write_text(secret_table(30))
    assert folder.fit().exit_code == 0
    valid = {"csv": "sales.csv", "toml": "bounds.toml", "json": "model.json"}[kind]
    rng = random.Random(seed)
    codes = []
    capfd.readouterr()
    for number, bad in enumerate(malformed(kind, (folder / valid).read_bytes(), count, seed)):
        (folder / f"bad.{kind}").write_bytes(bad)
        command = rng.choice(COMMANDS[kind])
        with interrupted():
            result = folder.run(*command, *(["--overwrite"] if command[0] == "fit" else []))
        label = f"{kind} {number} of seed {seed}, {command}: {result.output!r}"
        shown = capfd.readouterr()
        text = result.output + shown.out + shown.err
        assert result.exit_code in (0, 2, 4), label
        assert "Traceback" not in text, label
        assert "panicked" not in text, label
        assert SECRET_TEXT not in text, label
        assert SECRET_NUMBER not in text, label
        if result.exit_code:
            assert result.stderr or "--json" in command, label
            assert result.stderr.count("\n") <= 1, label
        codes.append(result.exit_code)
    # The mutations are worth their name: most files are refused, and some are still read.
    assert 0.5 < sum(code != 0 for code in codes) / count < 1


@pytest.mark.parametrize(("kind", "count"), [("csv", 250), ("toml", 200), ("json", 250)])
def test_malformed_files(kind, count, tmp_path, capfd):
    attack(kind, count, 0, tmp_path, capfd)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("kind", ["csv", "toml", "json"])
def test_more_malformed_files(kind, seed, tmp_path, capfd):
    attack(kind, 1000, seed, tmp_path, capfd)
