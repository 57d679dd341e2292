"""What a run looks like: figures, charts for a terminal, a page, a trace, and a progress display.

May import: errors, kernels, storage, core, runs.
"""
