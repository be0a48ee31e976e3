"""A small table with its bounds, and the command line run in this process."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from typer.main import get_command

from dpconvex.cli import app

# Built once: typer's own runner builds it for every call, half of the time of 2,000 calls.
COMMAND = get_command(app)

BOUNDS = """\
[features]
temperature = [-20, 40]
price = [0, 10]

[target]
demand = [0, 150]

[categories]
city = ["berlin", "paris"]
"""


def sales_csv(rows: int, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    temperature = rng.normal(15, 8, rows)
    price = rng.uniform(1, 9, rows)
    city = rng.choice(["berlin", "paris", "rome"], rows)
    demand = 40 + 1.5 * temperature - 3 * price + 10 * (city == "paris") + rng.normal(0, 6, rows)
    lines = ["day,temperature,price,city,demand"]
    lines += [
        f"{day},{t:.2f},{p:.2f},{c},{y:.1f}"
        for day, (t, p, c, y) in enumerate(zip(temperature, price, city, demand, strict=True))
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Result:
    """What a command did."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


class Folder:
    """A folder with sales.csv and bounds.toml, and the command line run on it."""

    def __init__(self, path: Path, rows: int = 400) -> None:
        self.path = path
        (path / "sales.csv").write_text(sales_csv(rows))
        (path / "bounds.toml").write_text(BOUNDS)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def run(self, *arguments: object) -> Result:
        """Run; an argument that is the name of a file is taken from the folder."""
        ends = (".csv", ".toml", ".json", ".parquet", ".db", ".html")
        words = [str(word) for word in arguments]
        words = [str(self.path / word) if word.endswith(ends) else word for word in words]
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            try:
                COMMAND.main(words, prog_name="dpconvex")
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
        return Result(code, out.getvalue(), err.getvalue())

    def fit(self, *more: object) -> Result:
        return self.run(
            *("fit", "sales.csv", "--feature-bounds", "bounds.toml", "--out", "model.json"),
            *("--overwrite", *more),
        )
