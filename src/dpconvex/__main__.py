"""``python -m dpconvex`` is the command ``dpconvex``."""

from dpconvex.cli import main

if __name__ == "__main__":
    main()
