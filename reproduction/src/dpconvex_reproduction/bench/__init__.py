"""A benchmark of private methods: the same rows, public bounds, budget and neighbours for
everybody.

A problem is a data set and a task, a method is three functions (fit, predict, stated guarantee).
Results are rows of one Parquet file and one page, which begins with what our models lose.
"""

from dpconvex_reproduction.bench.method import Budget, Method
from dpconvex_reproduction.bench.problems import Attribute, BenchProblem

__all__ = ["Attribute", "BenchProblem", "Budget", "Method"]
