"""The results of `asyncqn run` besides the run itself: theta, coefficients, the held-out score."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncqn.errors import require
from asyncqn.storage import check_output, write_whole

if TYPE_CHECKING:
    from asyncqn.runs.run import Run
    from asyncqn.types import Problem


@dataclass(frozen=True)
class Result:
    """The files to write; None: no such file."""

    theta: Path | None = None
    coefficients: Path | None = None

    def check(self, problem: Problem) -> None:
        """Raise `BadInput` early for a file that could not be written later."""
        from asyncqn.models.linear_model import LinearModel

        # Before the run, so that a mistyped path does not cost its result.
        for path in (self.theta, self.coefficients):
            if path is not None:
                check_output(path)
        require(
            self.coefficients is None or isinstance(problem, LinearModel),
            "--coefficients needs a linear model: use --theta for the numbers of any problem.",
        )

    def write(self, run: Run) -> dict[str, Any]:
        """Write the files, and return the entries to print."""
        from asyncqn.models.coefficients import coefficient_table
        from asyncqn.models.linear_model import LinearModel

        said: dict[str, Any] = {}
        if self.theta is not None:
            said["theta"] = str(write_whole(self.theta, run.theta))
        problem = run.problem
        if not isinstance(problem, LinearModel):
            return said
        if self.coefficients is not None:
            table = coefficient_table(problem, run.theta)
            text = io.StringIO()
            # csv's default line end is that of DOS.
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(table.columns)
            writer.writerows(zip(*(table[name].tolist() for name in table.columns)))
            said["coefficients"] = str(write_whole(self.coefficients, text.getvalue()))
        if problem.held_out is not None:
            said["held_out_rows"] = len(problem.held_out.y)
            said[f"held_out_{problem.score_name}"] = problem.score(run)
        return said
