"""The posteriors of posteriordb that have reference draws, as log densities of unconstrained parameters.

`DENSITIES` maps the name in posteriordb to a function of its data that returns a `Density`, the telling ones
first.  Left out, of those with reference draws: mcycle_gp-accel_gp, whose draws this study did not have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.studies.posteriors import others, regressions
from benchmarks.studies.posteriors.density import Density

DENSITIES: dict[str, Callable[[dict[str, Any]], Density]] = {
    "eight_schools-eight_schools_noncentered": others.eight_schools,
    "gp_pois_regr-gp_pois_regr": others.gp_pois,
    "garch-garch11": others.garch,
    "diamonds-diamonds": regressions.diamonds,
    "low_dim_gauss_mix-low_dim_gauss_mix": others.mixture,
    "hudson_lynx_hare-lotka_volterra": others.lotka_volterra,
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs": others.one_compartment,
    "bball_drive_event_0-hmm_drive_0": partial(others.hmm_drive, exponential=True),
    "bball_drive_event_1-hmm_drive_1": partial(others.hmm_drive, exponential=False),
    "hmm_example-hmm_example": others.hmm,
    "gp_pois_regr-gp_regr": others.gp_regr,
    "arma-arma11": others.arma,
    "arK-arK": others.ark,
    "kilpisjarvi_mod-kilpisjarvi": regressions.kilpisjarvi,
    "sblrc-blr": regressions.blr,
    "sblri-blr": regressions.blr,
    **{f"mesquite-{m}": regressions.mesquite(m) for m in (
        "mesquite", "logmesquite", "logmesquite_logva", "logmesquite_logvas", "logmesquite_logvash",
        "logmesquite_logvolume")},
    **{f"earnings-{m}": regressions.earnings(m) for m in (
        "earn_height", "log10earn_height", "logearn_height", "logearn_height_male", "logearn_interaction",
        "logearn_interaction_z", "logearn_logheight_male")},
    **{f"kidiq-{m}": regressions.kidscore(m) for m in (
        "kidscore_interaction", "kidscore_momhs", "kidscore_momhsiq", "kidscore_momiq")},
    **{f"kidiq_with_mom_work-{m}": regressions.kidscore(m) for m in (
        "kidscore_interaction_c", "kidscore_interaction_c2", "kidscore_interaction_z", "kidscore_mom_work")},
    **{f"nes{year}-nes": regressions.nes for year in (1972, 1976, 1980, 1984, 1988, 1992, 1996, 2000)},
}  # fmt: skip
