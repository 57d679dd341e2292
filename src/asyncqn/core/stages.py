"""Stages: how updates reach the master, as a short sequence that every algorithm states.

A stage says how many commits it has, how the rows are cut, what share of them is used, and when a
version closes.  Most algorithms have one stage:

    ASYNCHRONOUS                     each answer is a commit, workers draw their own rows
    rounds(timeout, quorum)          answers are committed together, round by round
    blocks(n, backup_after, pieces)  a version closes when every part of the data is answered

A warm-up on batches before exact passes, or samples that grow to all rows, are stages in a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

from asyncqn.errors import BadInput, require


class Closes(Enum):
    """When the master commits, and a new version comes to be."""

    EACH_ANSWER = "each answer"
    ROUND = "a round"
    ALL_PARTS = "all parts"


@dataclass(frozen=True)
class Stage:
    """One stretch of a run; see the top of this file.

    closes: when a version does.
    commits: how many the stage has; None: all that are left.
    blocks: into how many the rows are cut, and pieces: into how many each block is; `Task.part` numbers the
    pieces through.  None: workers draw their own rows.  Where each answer is a commit, blocks are handed
    out in turn.
    share: of the rows that the stage uses, so that a computation takes that share of the time.
    timeout, quorum: a round closes when all workers answered, or when `timeout` has passed since the
    broadcast reached them and at least a share `quorum` of them answered.
    backup_after: idle workers duplicate parts that have been out for so many mean times of an answer, less
    six standard deviations; the first answer wins (`kernels.blocks` has the rule).

    A worker may answer several parts of one version, so that where all parts close a version the arrays of
    an update must stay valid until it is committed, beyond the worker's next step.
    """

    closes: Closes
    commits: int | None = None
    blocks: int | None = None
    pieces: int = 1
    share: float = 1.0
    timeout: float = 0.0
    quorum: float = 1.0
    backup_after: float = math.inf

    @property
    def parts(self) -> int | None:
        """Into how many parts the rows are cut; None: they are not."""
        return None if self.blocks is None else self.blocks * self.pieces

    @property
    def first_part(self) -> int | None:
        """The part of a computation that is made to see what one is like."""
        return None if self.blocks is None else 0

    @property
    def waits(self) -> bool:
        """Whether an answer may wait for its commit."""
        return self.closes is not Closes.EACH_ANSWER


Stages = tuple[Stage, ...]

ASYNCHRONOUS: Stages = (Stage(Closes.EACH_ANSWER),)


def rounds(timeout: float, quorum: float) -> Stage:
    """Synchronous rounds, to the end of the run."""
    return Stage(Closes.ROUND, timeout=float(timeout), quorum=float(quorum))


def batches(n: int, commits: int) -> Stage:
    """Each answer is a commit, and is of one of n parts of the data, handed out in turn."""
    return Stage(Closes.EACH_ANSWER, commits, n)


def blocks(
    n: int, backup_after: float, pieces: int = 1, *, share: float = 1.0, commits: int | None = None
) -> Stage:
    """Versions of n blocks in `pieces` pieces each, on a share of the rows."""
    return Stage(Closes.ALL_PARTS, commits, n, pieces, share, backup_after=float(backup_after))


def stage_index(stages: Stages, version: int) -> int:
    """Which stage computes on a version and makes the next."""
    for i, stage in enumerate(stages):
        if stage.commits is None or version < stage.commits:
            return i
        version -= stage.commits
    return len(stages) - 1


def stage_at(stages: Stages, version: int) -> Stage:
    """The stage that computes on a version and makes the next."""
    if stages[0].commits is None:  # as in most runs, at every commit
        return stages[0]
    return stages[stage_index(stages, version)]


def last_versions(stages: Stages) -> list[float]:
    """For every stage the version that it ends with; infinite where it lasts."""
    return list(accumulate(math.inf if stage.commits is None else stage.commits for stage in stages))


def check_stages(stages: object, name: str) -> None:
    """Raise `BadInput` unless this is a sequence of stages of which only the last has no end."""
    wanted = f"{name}.stages must be a tuple of asyncqn.core.stages.Stage, such as ASYNCHRONOUS"
    require(isinstance(stages, tuple) and len(stages) > 0, f"{wanted}, not {stages!r}.")
    assert isinstance(stages, tuple)
    for stage in stages:
        if not isinstance(stage, Stage):
            raise BadInput(f"{wanted}; it holds {stage!r}.")
    ends = [stage.commits is not None for stage in stages]
    require(all(ends[:-1]) and not ends[-1], f"{name}.stages: the last stage, and no other, has no end.")
