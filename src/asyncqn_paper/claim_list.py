"""The claims of the paper, in its order, each with the axes that it leaves open; then checks of our own."""

from __future__ import annotations

from asyncqn_paper.claims import Claim

PROBLEM, H0, CAUTIOUS, QUORUM = "problem", "H₀", "cautious constant", "quorum"
LINK, TARGET, START, NUMBERS, FRICTION = "link at the master", "target", "start", "numbers", "friction"
TIMEOUT, DATA, ENGINE, SPREAD = "timeout", "data", "engine", "spreads compared"
RIVAL, STEP, LENGTH = "what without momentum is", "step", "length of the run"

_ORDER = (PROBLEM, H0, CAUTIOUS, QUORUM, LINK, TARGET, START, NUMBERS)
_SPEEDUP = (PROBLEM, LINK, CAUTIOUS, H0, TARGET, START)
_ASYNCHRONOUS = (PROBLEM, H0, CAUTIOUS, LINK, TARGET, START, NUMBERS)

_RATINGS = (START, CAUTIOUS, H0, LINK, NUMBERS, LENGTH)

_LIST = (
    Claim("momentum", "momentum repairs much of the instability that stale updates cause", "§ 3.2",
          (PROBLEM, H0, CAUTIOUS, FRICTION, RIVAL)),
    Claim("overlap", "the extra gradient on the overlap costs little", "§ 3.1", (DATA,)),
    Claim("law", "the stationary law is exp(−βU(θ) − βp²/2), up to O(max(1, l) h)", "Prop. 1"),
    Claim("ergodic", "the ergodic error falls as 1/(N h)", "Thm. 1"),
    Claim("bias", "the bias grows at most in proportion to h", "Thm. 1"),
    Claim("staleness", "staleness multiplies the bias by at most l_max", "Thm. 1"),
    Claim("temperature", "the error of the temperature falls as 1/β", "Thm. 1"),
    Claim("rate", "with h ∝ 1/√N the error falls at least as fast as 1/√N", "Thm. 1"),
    Claim("linear-speedup", "speedup is linear while l_max = O(1/(N h²)): the error after N commits is that "
          "of W = 1", "Thm. 1"),
    Claim("fig1", "the simulator gives a realistic picture of a real run, fluctuations included", "Fig. 1",
          (ENGINE,)),
    Claim("fig2-sgd", "with workers alike (small σ_w²), a-SGD takes longer than both quasi-Newton methods",
          "Fig. 2", _ORDER),
    Claim("fig2-alike", "with workers alike, as-L-BFGS and mb-L-BFGS take similar times", "Fig. 2", _ORDER),
    Claim("fig2-mb", "mb-L-BFGS gets slower as σ_w² grows", "Fig. 2",
          (PROBLEM, QUORUM, TIMEOUT, TARGET, START, NUMBERS)),
    Claim("fig2-robust", "both asynchronous methods are robust against σ_w²", "Fig. 2", _ASYNCHRONOUS),
    Claim("fig2-best", "as-L-BFGS is the better asynchronous method at every σ_w², and the fastest of all "
          "where workers differ", "Fig. 2", _ORDER),
    Claim("table", "the table's parameters of as-L-BFGS (h, γ, β, M, N_Ω, N_O) work at W = 40", "Table S1",
          (PROBLEM, H0, CAUTIOUS)),
    Claim("fig3-iterations", "more workers need more iterations, since the step must shrink", "Fig. 3",
          _SPEEDUP),
    Claim("fig3-time", "the time to ε falls gracefully with W", "Fig. 3", _SPEEDUP),
    Claim("fig3-variance", "the speedup is more prominent for smaller σ_w²", "Fig. 3",
          (*_SPEEDUP, SPREAD)),
    Claim("rho", "H + ρI in the place of H is numerically more stable", "§ 5, factorization",
          (DATA, START, CAUTIOUS)),
    Claim("fig4-mb", "as-L-BFGS is clearly faster than mb-L-BFGS", "Fig. 4", _RATINGS),
    Claim("fig4-rmse", "mb-L-BFGS ends with a poorer RMSE than both", "Fig. 4", _RATINGS),
    Claim("fig4-gain", "as-L-BFGS gains slightly on a-SGD", "Fig. 4", _RATINGS),
    Claim("fig4-fluctuates", "as-L-BFGS fluctuates more than a-SGD", "Fig. 4", _RATINGS),
    Claim("fig5-linear", "speedup in time is near linear up to W = 10", "Fig. 5", (ENGINE, START)),
    Claim("fig5-unstable", "W = 20 is unstable with the parameters that serve W = 10", "Fig. 5",
          (ENGINE, START)),
    Claim("fig5-step", "a smaller step cures it", "Fig. 5", (ENGINE, START, STEP)),
    Claim("s1", "speedup in iterations is linear", "Fig. S1", (ENGINE, START)),
    Claim("law-needs-gamma", "where H depends on θ, leaving out Γ, as the algorithm does, gives another law",
          "Prop. 1", own=True),
    Claim("independent", "an independent program gives the same times within 10 %", "Fig. 2", own=True),
    Claim("friction", "a step that serves few workers fails for many, where stale friction says", "Fig. 3",
          own=True),
    Claim("stays", "as-L-BFGS stays at ε once it is there", "Fig. 2", _ASYNCHRONOUS, own=True),
    Claim("pairs-act", "there is a setting in which curvature pairs make as-L-BFGS faster", "Fig. 2",
          own=True),
)  # fmt: skip

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in _LIST}


def find_claim(key: str) -> Claim:
    """A claim by its id; anything else is a check of our own."""
    return CLAIMS.get(key) or Claim(key, key, "", own=True)
