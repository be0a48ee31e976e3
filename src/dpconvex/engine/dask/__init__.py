"""Rows in partitions, read where they lie: sums move, rows stay."""
