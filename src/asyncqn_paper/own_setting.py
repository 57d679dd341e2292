"""Figure 2 in a setting of your own: `asyncqn reproduce fig2 --set lambda_max=20 --set pays=tree`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from asyncqn.errors import require
from asyncqn.parameters import Checked, from_json, parameter
from asyncqn_paper.drawing import save_figure, style
from asyncqn_paper.figures.fig2 import (
    LIMIT,
    TARGET,
    VARIANCES,
    Points,
    Setting,
    draw_setting,
    judge,
    payer_of,
)
from asyncqn_paper.figures.gaussian import FRESH
from asyncqn_paper.rules import CLAIMS, GREY
from asyncqn_paper.settings import EVERYONE, NAMES, NOBODY, TREE, UPDATES_ONLY

PAYERS = {
    "nobody": NOBODY,
    "every": EVERYONE,
    "answers": UPDATES_ONLY,
    "tree": TREE,
}


@dataclass(frozen=True)
class OwnSetting(Checked):
    """A setting of Fig. 2.

    Parameters
    ----------
    lambda_max : float, default 2.0
        Largest eigenvalue of the posterior precision; the prior alone has 1.
    pays : {"nobody", "every", "answers", "tree"}, default "tree"
        Which messages keep the master's link busy: none, all, the workers' alone, or all with broadcasts
        by a tree.
    share : float, default 20.0
        Share of an exchange of messages during which the link is busy, in percent.
    integrator : {"explicit", "modified"}, default "explicit"
        Whether theta moves by the old momentum or by the new one.
    seeds : int, default 10
        Number of runs of each method at each sigma_w^2; two or more.
    """

    lambda_max: Annotated[float, parameter(gt=1.0)] = 2.0
    pays: Literal["nobody", "every", "answers", "tree"] = "tree"
    share: Annotated[float, parameter(gt=0.0, le=50.0)] = 20.0
    integrator: Literal["explicit", "modified"] = "explicit"
    seeds: Annotated[int, parameter(ge=2, le=FRESH)] = 10

    def setting(self) -> Setting:
        """Return the setting as Fig. 2 has it."""
        payer = PAYERS[self.pays]
        if self.pays != "nobody":
            payer = payer_of(self.share, payer)
        return Setting(self.lambda_max - 1.0, payer, self.integrator)


def parse(pairs: Sequence[str]) -> OwnSetting:
    """Return the setting that texts of the form NAME=VALUE describe."""
    values = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        require(
            bool(name.strip() and text.strip()),
            f"--set {pair} cannot be read: write NAME=VALUE, as in --set lambda_max=20.",
        )
        try:
            values[name.strip()] = json.loads(text)
        except ValueError:
            values[name.strip()] = text.strip()
    found: OwnSetting = from_json(OwnSetting, values, "the setting of Fig. 2")
    return found


def run_setting(
    pairs: Sequence[str], folder: Path, show: Callable[[str], object]
) -> dict[str, Any]:
    """Run Fig. 2 in a setting, show its times and outcomes, and write FOLDER/fig2.png."""
    own = parse(pairs)
    setting = own.setting()
    seeds = range(FRESH, FRESH + own.seeds)
    rows: dict[str, Points] = {}
    show(
        "median time to ε = 0.05 (σ_w² = "
        + ", ".join(f"{v:g}" for v in VARIANCES)
        + ")"
    )
    for kind, name in NAMES.items():
        rows[kind] = {v: setting.curve(kind, v, seeds).measure() for v in VARIANCES}
        times = [_median(records) for records in rows[kind].values()]
        show(f"  {name:10} " + " ".join(f"{time:6.0f}" for time in times))
    outcomes = judge(rows, setting.choices)
    if outcomes[-1].end == GREY:
        show(f"  {GREY}: {outcomes[-1].because}")
    for found in (one for one in outcomes if one.end != GREY):
        claim = CLAIMS[found.claim]
        number = "" if claim.parts or not found.runs else f" ({claim.reading(found)})"
        show(
            f"  {found.end}: {claim.text}{number}{'; ' * bool(found.because)}{found.because}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with style():
        save_figure(draw_setting(rows), folder / "fig2")
    show(f"the picture is {folder / 'fig2.png'}")
    return {"claims": {found.claim: found.end for found in outcomes}}


def _median(records: Sequence[dict[str, Any]]) -> float:
    """Return the median time; late runs count as the limit."""
    times = [LIMIT if record[TARGET] is None else record[TARGET] for record in records]
    return float(np.median(times))
