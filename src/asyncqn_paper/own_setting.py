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
    VARIANCES,
    Points,
    Setting,
    draw_setting,
    judge,
    payer_of,
)
from asyncqn_paper.figures.gaussian import FRESH, TARGET
from asyncqn_paper.rules import CLAIMS, GREY
from asyncqn_paper.settings import EVERYONE, NAMES, NOBODY, TREE, UPDATES_ONLY

PAYERS = {"every": EVERYONE, "answers": UPDATES_ONLY, "tree": TREE}


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
        payer = NOBODY
        if self.pays != "nobody":
            payer = payer_of(self.share, PAYERS[self.pays])
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
            # Words need no quotation marks.
            values[name.strip()] = text.strip()
    own: OwnSetting = from_json(OwnSetting, values, "the setting of Fig. 2")
    return own


def run_setting(
    pairs: Sequence[str], folder: Path, show: Callable[[str], object]
) -> dict[str, Any]:
    """Run Fig. 2 in a setting, show its times and outcomes, and write FOLDER/fig2.png."""
    own = parse(pairs)
    setting = own.setting()
    seeds = range(FRESH, FRESH + own.seeds)
    variances = ", ".join(f"{variance:g}" for variance in VARIANCES)
    show(f"median time to ε = 0.05 (σ_w² = {variances})")
    rows: dict[str, Points] = {}
    for kind, name in NAMES.items():
        rows[kind] = {v: setting.curve(kind, v, seeds).measure() for v in VARIANCES}
        line = f"  {name:10}"
        for records in rows[kind].values():
            # Late runs count as the limit.
            times = [LIMIT if r[TARGET] is None else r[TARGET] for r in records]
            line += f" {np.median(times):6.0f}"
        show(line)
    outcomes = judge(rows, setting.choices)
    for outcome in outcomes:
        claim = CLAIMS[outcome.claim]
        words = f"  {outcome.end}: {claim.text}"
        if outcome.runs and not claim.parts:
            words += f" ({claim.reading(outcome)})"
        if outcome.because:
            words += f"; {outcome.because}"
        if outcome.end != GREY or outcome is outcomes[-1]:
            show(words)
    folder.mkdir(parents=True, exist_ok=True)
    with style():
        save_figure(draw_setting(rows), folder / "fig2")
    show(f"the picture is {folder / 'fig2.png'}")
    return {"claims": {outcome.claim: outcome.end for outcome in outcomes}}
