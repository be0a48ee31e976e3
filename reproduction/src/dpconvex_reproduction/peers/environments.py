"""Environments of peers: a peer is its pinned packages and a worker script that its own interpreter
runs.

Peers need versions of packages that dpconvex does not have, so each has an environment in the cache
folder (``XDG_CACHE_HOME`` or ``~/.cache``). Only ``dpconvex reproduce --install-peers`` makes them,
from the package index.

A worker is called ``python worker.py data.npz requests.json answers.npz``: it reads arrays and a
list of requests, and writes an array ``scores`` with a line for each request (one value per test
row) and an array ``seconds``.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIFFPRIVLIB", "ENVIRONMENTS", "INTERPRET", "JAX_PRIVACY", "OPACUS", "PeerEnvironment"]

_INSIDE = Path("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpconvex"


@dataclass(frozen=True)
class PeerEnvironment:
    """Packages of one peer.

    Attributes
    ----------
    name : str
        What messages and folders call it.
    pins : tuple of str
        Requirements with exact versions.
    """

    name: str
    pins: tuple[str, ...]

    @property
    def home(self) -> Path:
        """Folder of the environment; another one for other pins or another Python."""
        digest = hashlib.sha256(" ".join((sys.version, *self.pins)).encode()).hexdigest()[:12]
        return _cache() / f"{self.name}-{digest}"

    def python(self) -> Path:
        """Return the interpreter that has the packages.

        Raises
        ------
        RuntimeError
            If there is none; the message says how to make it.
        """
        python = self.home / _INSIDE
        if not python.exists():
            words = (
                "--install-peers"
                if self in ENVIRONMENTS
                else "bench --install-peers --add your_file.py"
            )
            raise RuntimeError(
                f"{self.name} is not installed. It needs an environment of its own: "
                f"`dpconvex reproduce {words}` makes it from the package index."
            )
        return python

    def install(self) -> Path:
        """Make the environment if there is none, and return its interpreter.

        Raises
        ------
        RuntimeError
            If it cannot be installed; the message says why.
        """
        home = self.home
        if (home / _INSIDE).exists():
            return home / _INSIDE
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home.parent) as workshop:
                made = Path(workshop) / "environment"
                run = functools.partial(subprocess.run, check=True, capture_output=True, text=True)
                run([sys.executable, "-m", "venv", str(made)])
                options = ("install", "--quiet", "--retries", "1", "--timeout", "15")
                run([str(made / _INSIDE), "-m", "pip", *options, *self.pins])
                if not home.exists():  # somebody else may have been faster
                    made.rename(home)
        except subprocess.CalledProcessError as error:
            said = (error.stderr or "").strip().splitlines()
            raise RuntimeError(
                f"{self.name} could not be installed: {' '.join(said[-1:])}"
            ) from error
        except OSError as error:
            if not (home / _INSIDE).exists():
                raise RuntimeError(f"{self.name} could not be installed: {error}") from error
        return home / _INSIDE

    def ask(
        self,
        worker: str | os.PathLike[str],
        arrays: Mapping[str, NDArray[Any]],
        requests: Sequence[Mapping[str, Any]],
    ) -> dict[str, NDArray[Any]]:
        """Run a worker script in the environment and return the arrays of its answer.

        Raises
        ------
        RuntimeError
            If there is no environment, or the worker fails; the message has its last line.
        """
        python = self.python()
        with tempfile.TemporaryDirectory() as folder:
            data, questions, answers = (
                Path(folder) / name for name in ("data.npz", "requests.json", "answers.npz")
            )
            np.savez(data, **dict(arrays))  # type: ignore[arg-type]
            questions.write_text(json.dumps(list(requests)), encoding="utf-8")
            # -P: modules beside the worker must not hide packages of the same name.
            command = [str(python), "-P", str(worker), str(data), str(questions), str(answers)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(
                    f"{self.name} failed: {' '.join(done.stderr.strip().splitlines()[-1:])}"
                )
            with np.load(answers) as file:
                return {name: file[name] for name in file.files}


DIFFPRIVLIB = PeerEnvironment(
    "diffprivlib", ("diffprivlib==0.6.6", "scikit-learn==1.6.1", "scipy==1.14.1", "numpy==2.2.6")
)
INTERPRET = PeerEnvironment(
    "interpret", ("interpret-core==0.7.8", "scikit-learn==1.9.1", "numpy==2.4.6", "pandas==3.1.1")
)
OPACUS = PeerEnvironment("opacus", ("opacus==1.6.0", "torch==2.13.0", "numpy==2.4.6"))
JAX_PRIVACY = PeerEnvironment(
    "jax-privacy", ("jax-privacy==2.0.0", "jax==0.10.2", "jaxlib==0.10.2")
)
ENVIRONMENTS = (DIFFPRIVLIB, INTERPRET, OPACUS, JAX_PRIVACY)
