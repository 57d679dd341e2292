"""Views of a run: figures, charts for a terminal, a page, a trace, and a progress display.

`seen` gives a run and a checkpoint a common form; `axes` and `styles` hold the rules that all drawings share.

May import: columns, errors, kernels, storage, core, runs.
"""
