"""Benchmarks of speed and memory: `python -m benchmarks`, or `make bench`.

One module per family; `__main__` runs them and writes one JSON file, `report` makes a table of such
a file, `compare` shows two files side by side.
"""
