"""Build both distributions into dist/, install the library's wheel alone in a clean environment,
and use it there.

    python tools/check_dist.py

The wheel is built from the sdist, so that the sdist is known to be whole. In the clean environment
run the demo, the first Python example of README.md, and a command that must say kindly what is
missing.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 1_000_000  # bytes of a wheel
FOREIGN = re.compile(r"^(tests|docs|benchmarks|examples|tools|dpconvex_reproduction)/")


def run(*words: object, where: Path = ROOT, code: int = 0) -> str:
    """Run a command, show it and return what it printed; any other exit code ends everything."""
    command = [str(word) for word in words]
    print("$", *command[:1], *(word.partition("\n")[0] for word in command[1:]), flush=True)
    done = subprocess.run(command, cwd=where, text=True, capture_output=True)
    if done.returncode != code:
        sys.exit(f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def build(project: Path, out: Path) -> Path:
    """Build an sdist, and a wheel from it; return the wheel after a look inside."""
    before = set(out.glob("*.whl"))
    run(sys.executable, "-m", "build", "--outdir", out, project)
    (wheel,) = set(out.glob("*.whl")) - before
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1000:.0f} kB, {len(names)} files")
    if size >= LARGEST:
        sys.exit(f"The wheel must be smaller than {LARGEST / 1e6:.0f} MB.")
    return wheel


def main() -> None:
    """Build, install, use."""
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    wheel = build(ROOT, out)
    with zipfile.ZipFile(wheel) as archive:
        foreign = [name for name in archive.namelist() if FOREIGN.match(name)]
    if foreign:
        sys.exit(f"The library's wheel holds what is not the library: {foreign[:5]}")
    museum = build(ROOT / "reproduction", out)
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)[0]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(sys.executable, "-m", "venv", place / "clean")
        programs = place / "clean" / ("Scripts" if sys.platform == "win32" else "bin")
        install = (
            programs / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "-c",
            ROOT / "constraints.txt",
        )
        run(*install, wheel, where=place)
        print(run(programs / "dpconvex", "demo", where=place).rstrip()[-400:])
        print(run(programs / "python", "-c", example, where=place).rstrip()[-400:])
        refusal = run(programs / "dpconvex", "reproduce", "--list", where=place, code=2)
        if "pip install dpconvex-reproduction" not in refusal:
            sys.exit(
                "`dpconvex reproduce` does not say how to install the other distribution:\n"
                f"{refusal}"
            )
        run(*install, museum, where=place)
        listed = json.loads(
            run(programs / "dpconvex", "reproduce", "--list", "--json", where=place)
        )
        print(f"dpconvex reproduce --list: {len(listed)} tables and figures")
    print(f"Both distributions are in {out.relative_to(ROOT)}/, installed and used.")


if __name__ == "__main__":
    main()
