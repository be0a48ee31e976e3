"""The papers' own algorithms with printed constants, and their tables and figures."""
