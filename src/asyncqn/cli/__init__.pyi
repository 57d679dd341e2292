"""Public names of the command line, for commands of other packages."""

from ..view.page import write_page
from ..view.plots import convergence, new_figure, render, save_picture
from ..view.seen import look_at
from ..view.styles import ALGORITHM_STYLES, STYLES
from .main import run_commands
from .options import Generated
from .output import Output

__all__ = [
    "ALGORITHM_STYLES",
    "STYLES",
    "Generated",
    "Output",
    "convergence",
    "look_at",
    "new_figure",
    "render",
    "run_commands",
    "save_picture",
    "write_page",
]
