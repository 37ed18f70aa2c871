"""How fast, beside whom: one script per question, all of them by `python -m benchmarks`."""
