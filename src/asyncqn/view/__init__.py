"""What a run looks like: figures, charts for a terminal, a page, a trace, and a progress display.

May import: table, errors, kernels, storage, core, runs.
"""
