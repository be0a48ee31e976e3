"""What a release guarantees, as data that can be checked without the data it protects."""
