"""``dpconvex`` and ``python -m dpconvex``: the command line, loaded so that an interrupt is one
line from the start.
"""

from __future__ import annotations

import contextlib
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; an interrupt, also while it loads, is one line and exit code 130."""
    try:
        from dpconvex.cli import main as run

        run()
    except KeyboardInterrupt as stopped:
        # At once: threads and handlers that are still at work have nothing to add.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"interrupted; {stopped}\n" if stopped.args else "interrupted.\n")
            sys.stderr.flush()
        os._exit(130)


if __name__ == "__main__":
    main()
