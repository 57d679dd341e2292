"""Samples that grow to all rows: how many rows each has, how long it serves, when the curvature is asked for.

A sample holds one row of every `stride` consecutive ones, drawn anew for every stride by the seed, and serves
a number of versions that is fixed beforehand, so that schedules do not depend on the numbers computed.  The
last one is all rows and serves as many versions as it takes.

On top of pairs, strides are 4^J, ..., 16, 4: cheap versions on small samples learn the curvature that the
expensive ones use.  A test of the gradient against its sampling error (Byrd, Chin, Nocedal and Wu 2012) would
make the times of a schedule depend on the numbers.  On top of a metric they are 4^(J + 1), ..., 64, 16: a
quarter of all rows costs a quarter of a pass per version and brings less than that.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

GROWTH = 4
"""Factor by which a sample grows, so that all smaller samples together cost a third of the next one."""
PAIR_VERSIONS = (40, 20, 10)
"""Versions of the smaller samples, the largest last: in all 4.6 passes at most."""
METRIC_VERSIONS = (12, 3)
"""Versions of the first sample under a metric, and of each further one."""
RENEWALS = (0, 1, 2, 3, 4, 6, 8, 10)
"""Versions of the first sample that bring a summary of the curvature: as often as theta still moves far."""
RENEWAL_PERIOD = 16
"""Versions on all rows between two summaries later on; few runs get there."""
DEAR_SUMMARY = 45_500
"""Length of a summary, that of 300 features, from which on it costs more than the versions that it saves: a
matrix of d features costs d^2 operations for a row where a gradient costs d."""


class Sample(NamedTuple):
    """One row of every `stride`, for a number of versions; None: for all that are left."""

    stride: int = 1
    versions: int | None = None


@cache
def timetable(samples: int, metric: bool) -> tuple[Sample, ...]:
    """Return all samples, the last of which is all rows.

    Parameters
    ----------
    samples : int
        J: number of samples before all rows.
    metric : bool
        Whether H0 is a metric, whose samples are shorter.
    """
    growing = []
    for j in range(samples, 0, -1):
        if metric:
            growing.append(Sample(GROWTH ** (j + 1), METRIC_VERSIONS[j < samples]))
        else:
            versions = PAIR_VERSIONS[-min(j, len(PAIR_VERSIONS))]
            growing.append(Sample(GROWTH**j, versions))
    return (*growing, Sample())


def wants_summary(
    version: int, first: bool, last: bool, curvature: int, dim: int
) -> bool:
    """Return whether updates bring a summary of the curvature at a version of a sample.

    Parameters
    ----------
    version : int
        Counts from the first version on the sample.
    first, last : bool
        Whether the sample is the first one, and whether it is all rows.
    curvature, dim : int
        Lengths of the summary and of theta.
    """
    # Pairs are forgotten when a sample begins, so that it begins with a new H0.
    if version == 0 or (last and version % RENEWAL_PERIOD == 0):
        return True
    matrix = curvature > 2 * dim
    if matrix and curvature > DEAR_SUMMARY:
        return False
    # Beyond matrices H0 is a diagonal for most of theta, which a second summary settles.
    return (last and version == 2) or (first and matrix and version in RENEWALS)
