"""``dpconvex`` and ``python -m dpconvex``: the command line, loaded so that an interrupt is one
line from the start.
"""

from __future__ import annotations

import os
import sys

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = (
    "interrupted. If a fit with a ledger had begun, its budget is spent: see `dpconvex "
    "ledger show`."
)


def main() -> None:
    """Run the command line; an interrupt, also while it loads, is one line and exit code 130."""
    try:
        from dpconvex.cli import main as run

        run()
    except KeyboardInterrupt as stopped:
        # At once: threads and handlers that are still at work have nothing to add.
        plain = (
            "interrupted." if sys.argv[1:2] == ["reproduce"] else INTERRUPTED
        )  # which has no ledger
        sys.stderr.write(f"interrupted; {stopped}\n" if stopped.args else f"{plain}\n")
        sys.stderr.flush()
        os._exit(130)


if __name__ == "__main__":
    main()
