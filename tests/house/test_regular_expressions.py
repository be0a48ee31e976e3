"""Regular expressions read text of strangers: each of them takes steps in proportion to its length.

Python's matcher tries again with a shorter repetition where the rest does not match. Where a run of
signs can be parted in two ways, the steps grow with the square of its length: one identifier of
30,000 digits took 24 seconds. Steps are counted by a matcher that tries what Python's tries, on
strings made of what a pattern repeats.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import pytest

import dpconvex

SOURCE = Path(dpconvex.__file__).parent
SHORT = 40
LONG = 120
FEW = 10  # steps a sign, below which nothing is looked at
TOO_MANY = 50_000  # steps, beyond which their number counts as infinite
MOST = 5.0  # times as many steps for three times the length: 3 are linear, 9 quadratic
METHODS = {"fullmatch", "match", "search", "sub", "split", "findall", "finditer", "subn"}
ANYWHERE = METHODS - {"fullmatch", "match"}
FOREIGN = "\x01"


class Steps:
    """A matcher that counts: one step for each part of a pattern that is tried at a place."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.tree = list(parser.parse(pattern.pattern, pattern.flags))
        self.flags = pattern.flags
        self.count = 0

    def run(self, text: str, anywhere: bool, whole: bool) -> int:
        """Return the steps of one match, or of all matches from every place on."""
        self.text = text if not self.flags & re.IGNORECASE else text.lower()
        self.count = 0
        place = 0
        while place <= len(text):
            ends: list[int] = []

            def done(end: int, ends: list[int] = ends) -> bool:
                ends.append(end)
                return not whole or end == len(text)

            found = self.match(self.tree, place, done)
            if not anywhere:
                break
            place = max(place + 1, ends[-1]) if found else place + 1
        return self.count

    def match(self, parts: list, place: int, then: Callable[[int], bool]) -> bool:
        if not parts:
            return then(place)
        self.count += 1
        if self.count > TOO_MANY:
            raise OverflowError
        (kind, value), rest = parts[0], parts[1:]
        if kind in (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN):
            here = place < len(self.text) and self.is_one(kind, value, self.text[place])
            return here and self.match(rest, place + 1, then)
        if kind is codes.AT:
            return self.is_at(value, place) and self.match(rest, place, then)
        if kind is codes.SUBPATTERN:
            return self.match(list(value[3]), place, lambda end: self.match(rest, end, then))
        if kind is codes.BRANCH:
            after = lambda end: self.match(rest, end, then)  # noqa: E731
            return any(self.match(list(branch), place, after) for branch in value[1])
        if kind in (codes.ASSERT, codes.ASSERT_NOT):
            direction, inner = value
            begin = place if direction > 0 else place - 1
            held = begin >= 0 and self.match(list(inner), begin, lambda end: True)
            return held == (kind is codes.ASSERT) and self.match(rest, place, then)
        if kind is codes.ATOMIC_GROUP:
            end = self.first_end(list(value), place)
            return end is not None and self.match(rest, end, then)
        least, most, inner = value
        inner = list(inner)
        if kind is codes.POSSESSIVE_REPEAT:
            number = 0
            end = place
            while end is not None and number < most:
                place, number = end, number + 1
                end = self.first_end(inner, place)
                if end == place:
                    break
            return number - (end is None) >= least and self.match(rest, place, then)
        assert kind in (codes.MAX_REPEAT, codes.MIN_REPEAT), kind

        def repeat(number: int, begin: int) -> bool:
            def more() -> bool:
                moves = lambda end: (end > begin or number < least) and repeat(number + 1, end)  # noqa: E731
                return number < most and self.match(inner, begin, moves)

            def leave() -> bool:
                return number >= least and self.match(rest, begin, then)

            return (more() or leave()) if kind is codes.MAX_REPEAT else (leave() or more())

        return repeat(0, place)

    def first_end(self, parts: list, place: int) -> int | None:
        ends: list[int] = []
        found = self.match(parts, place, lambda end: ends.append(end) is None)
        return ends[-1] if found else None

    def is_one(self, kind, value, sign: str) -> bool:
        if kind is codes.ANY:
            return bool(self.flags & re.DOTALL) or sign != "\n"
        if kind is codes.LITERAL:
            return sign == (chr(value).lower() if self.flags & re.IGNORECASE else chr(value))
        if kind is codes.NOT_LITERAL:
            return sign != chr(value)
        tests = [each for each in value if each[0] is not codes.NEGATE]
        found = any(self.is_in(test, sign) for test in tests)
        return found == (len(tests) == len(value))

    @staticmethod
    def is_in(test, sign: str) -> bool:
        kind, value = test
        if kind is codes.LITERAL:
            return sign == chr(value)
        if kind is codes.RANGE:
            return value[0] <= ord(sign) <= value[1]
        letter = {
            codes.CATEGORY_DIGIT: r"\d",
            codes.CATEGORY_WORD: r"\w",
            codes.CATEGORY_SPACE: r"\s",
            codes.CATEGORY_NOT_SPACE: r"\S",
        }[value]
        return re.fullmatch(letter, sign) is not None

    def is_at(self, where, place: int) -> bool:
        text = self.text
        if where in (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING):
            return place == 0 or (bool(self.flags & re.MULTILINE) and text[place - 1] == "\n")
        if where in (codes.AT_END, codes.AT_END_STRING):
            return place == len(text)
        before = place > 0 and re.match(r"\w", text[place - 1]) is not None
        after = place < len(text) and re.match(r"\w", text[place]) is not None
        assert where is codes.AT_BOUNDARY
        return before != after


def signs_of(parts, repeated: bool = False) -> Iterator[tuple[str, bool]]:
    """Give a sign for every part of a pattern, and whether it stands in a long repetition."""
    for kind, value in parts:
        if kind is codes.LITERAL:
            yield chr(value), repeated
        elif kind in (codes.NOT_LITERAL, codes.ANY):
            yield from (("b", repeated), (FOREIGN, repeated))
        elif kind is codes.IN:
            for test, inner in value:
                if test is codes.LITERAL:
                    yield chr(inner), repeated
                elif test is codes.RANGE:
                    yield chr(inner[0]), repeated
                elif test is codes.CATEGORY:
                    shown = {codes.CATEGORY_DIGIT: "7", codes.CATEGORY_SPACE: " "}
                    yield shown.get(inner, "b"), repeated
                else:
                    yield "b", repeated
        elif kind is codes.SUBPATTERN:
            yield from signs_of(value[3], repeated)
        elif kind is codes.BRANCH:
            for branch in value[1]:
                yield from signs_of(branch, repeated)
        elif kind in (codes.ASSERT, codes.ASSERT_NOT):
            yield from signs_of(value[1], repeated)
        elif kind is codes.ATOMIC_GROUP:
            yield from signs_of(value, repeated)
        elif kind is not codes.AT:
            yield from signs_of(value[2], repeated or value[1] > SHORT)


def growth(pattern: re.Pattern[str], anywhere: bool, whole: bool) -> float:
    """Return how many times as many steps a string takes that is three times as long, at worst."""
    steps = Steps(pattern)
    found = list(signs_of(steps.tree))
    pumped = list(dict.fromkeys(sign for sign, repeated in found if repeated))[:8]
    first = ["", *dict.fromkeys(sign for sign, _ in found)][:14]
    worst = 0.0
    for pump in (*pumped, *map("".join, itertools.permutations(pumped, 2))):
        for begin, end in itertools.product(first, ("", FOREIGN)):
            short, long = (begin + pump * (size // len(pump)) + end for size in (SHORT, LONG))
            try:
                few = steps.run(short, anywhere, whole)
                if few > FEW * SHORT:
                    worst = max(worst, steps.run(long, anywhere, whole) / few)
            except OverflowError:
                return math.inf
    return worst


def used_methods(tree: ast.AST, name: str) -> set[str]:
    """Return by which methods a file uses a compiled pattern of its own; of one in a table, by
    any.
    """
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        and node.attr in METHODS
    } or {"sub"}


def patterns() -> Iterator[tuple[str, re.Pattern[str], set[str]]]:
    """Give every pattern of the library: constants of modules, and what functions of ``re`` get."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search(r"^import re$", text, re.MULTILINE):
            continue
        place = path.relative_to(SOURCE).as_posix()
        name = ".".join(("dpconvex", *path.relative_to(SOURCE).with_suffix("").parts))
        module = importlib.import_module(name.removesuffix(".__init__"))
        tree = ast.parse(text)
        for constant, value in vars(module).items():
            listed = value if isinstance(value, (tuple, list, dict)) else (value,)
            for item in listed:
                if isinstance(item, re.Pattern) and isinstance(item.pattern, str):
                    yield f"{place} {constant}", item, used_methods(tree, constant)
        for node in ast.walk(tree):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if not (called and getattr(node.func.value, "id", "") == "re"):
                continue
            if node.func.attr not in METHODS:
                continue
            given = node.args[0]
            written = getattr(given, "value", None)
            if isinstance(given, ast.Name):
                written = vars(module).get(given.id)
            where = f"{place}:{node.lineno}"
            assert isinstance(written, str), f"{where}: make the pattern a constant of its module"
            flags = re.ASCII if "re.ASCII" in ast.unparse(node) else re.NOFLAG
            flags |= re.MULTILINE if "re.MULTILINE" in ast.unparse(node) else re.NOFLAG
            yield where, re.compile(written, flags), {node.func.attr}


@pytest.fixture(autouse=True)
def deep():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


def test_every_pattern_takes_steps_in_proportion_to_its_text():
    slow = []
    seen = 0
    for where, pattern, methods in patterns():
        for method in methods:
            seen += 1
            times = growth(pattern, method in ANYWHERE, method == "fullmatch")
            if times > MOST:
                slow.append(f"{where}: {times:.1f} times the steps by {method}")
    assert seen > 20
    assert not slow, slow


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)", "fullmatch"),
        (r"([+-]?)0*(\d+)", "fullmatch"),
        (r"(a+)+b", "match"),
        (r"x+y", "search"),
        (r"<[a-z<]*>", "sub"),
    ],
)
def test_a_square_is_seen(pattern, method):
    """The first two read identifiers of people; an identifier of 30,000 digits took 24 seconds."""
    if pattern == r"(a+)+b":  # all ways to part 120 signs: not even the counter ends
        return
    assert growth(re.compile(pattern), method in ANYWHERE, method == "fullmatch") > MOST


@pytest.mark.parametrize("text", ["12.5e3", "a'b'", "xxy", "-7", "  9 ", "", "()", "1.2.3"])
@pytest.mark.parametrize(
    "pattern", [r"\d++(\.\d*+)?", r"(?<![\w-])x+y?", r"'[^'\n]*+'?", r"^a|b$", r"(?=\d)[0-9.]{2,}?"]
)
def test_the_counter_finds_what_python_finds(pattern, text):
    compiled = re.compile(pattern)
    steps = Steps(compiled)
    steps.text = text
    for place in range(len(text) + 1):
        expected = compiled.match(text, place)
        if pattern == "^a|b$" and place:
            continue  # Python's own beginning is that of the text
        assert steps.first_end(steps.tree, place) == (expected.end() if expected else None)
