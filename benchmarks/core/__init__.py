"""How all benchmarks measure: checks and times in turn, records as JSON, tables, options.

No module here imports one of a benchmark.
"""
