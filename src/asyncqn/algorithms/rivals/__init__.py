"""Methods to compare with, one per file: published asynchronous and serial ones."""
