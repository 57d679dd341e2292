"""Look at the page of a run in a real browser, on a wide screen and on a phone; fails where it is not drawn.

    python .ci/browser.py [FOLDER]     screenshots go to FOLDER, for a person to look at

Needs Chromium; .ci/run leaves the page out where it is absent, and says so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SCREENS = {"wide": (1280, 1500), "phone": (500, 2600)}  # a headless window is not narrower than 500
PROBE = """<script>addEventListener("load", () => { const d = document, shown = [...d.querySelectorAll("canvas")].map(c =>
  c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(v => v > 0)); d.getElementById("all").click();
  d.getElementById("in").click(); d.getElementById("log").click(); d.documentElement.dataset.shown = shown.join();
  d.documentElement.dataset.wider = d.documentElement.scrollWidth > innerWidth; });</script></body>"""


def browser() -> str:
    """The path of Chromium or Chrome."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("there is no Chromium: install the package chromium of your system.")
    return found


def make_page(folder: Path) -> Path:
    """A page of two runs with stragglers and dropped updates, as `asyncqn compare --html` writes it."""
    import asyncqn as aq
    from asyncqn.view.page import write_page
    from asyncqn.view.seen import look_at

    problem = aq.LinearGaussian.random(dim=20, n_data=120, seed=0)
    engine = aq.Simulator(aq.Cluster(workers=12, worker_mean=70.0, worker_std=35.0, message=10.0))
    rounds = aq.MBLBFGS(h=0.1, memory=3, batch=6, overlap=2, timeout=60.0, quorum=0.5)
    seen = {}
    for name, algorithm in {"async-sgd": aq.AsyncSGD(h=1e-4, batch=6), "mb-lbfgs": rounds}.items():
        aq.minimize(problem, algorithm, engine=engine, commits=300).save(folder / name)
        seen[name] = look_at(folder / name)
    return write_page(folder / "page.html", seen)


def main(folder: Path) -> int:
    """Two screens: everything drawn, buttons alive, nothing wider than the screen, no error in the console."""
    program, page = browser(), make_page(folder)
    probe = folder / "probe.html"
    probe.write_text(page.read_text("utf-8").replace("</body>", PROBE), "utf-8")
    common = [program, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000"]
    failed = 0
    for name, (width, height) in SCREENS.items():
        size = f"--window-size={width},{height}"
        picture = folder / f"{name}.png"
        subprocess.run([*common, size, f"--screenshot={picture}", page.as_uri()], capture_output=True, timeout=90)
        seen = subprocess.run(
            [*common, size, "--dump-dom", "--enable-logging=stderr", probe.as_uri()],
            capture_output=True,
            text=True,
            timeout=90,
        )
        said = dict(re.findall(r'data-(drawn|shown|wider)="([^"]*)"', seen.stdout[:400]))
        wrong = [line for line in seen.stderr.splitlines() if "CONSOLE" in line]
        good = said == {"drawn": "yes", "shown": "true,true,true,true", "wider": "false"} and not wrong
        failed += not (good and picture.exists())
        print(f"{name} ({width} x {height}): {'drawn' if good else f'WRONG: {said} {wrong}'}; {picture}")
    return failed


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="asyncqn-page-"))
    place.mkdir(parents=True, exist_ok=True)
    sys.exit(main(place.resolve()))
