"""The version of the library, as model files and reports state it."""

__version__ = "0.1.0"
