"""Send metrics to MLflow, Weights & Biases or TensorBoard with a callback.

Each tracker is a function of (numbers, step).  This program writes lines of JSON, so that it runs without any
of them; the other three functions show the calls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import IO, Any

import asyncqn as aq

Log = Callable[[dict[str, float], int], Any]


def to_json_lines(file: IO[str]) -> Log:
    """Write one JSON object per evaluation."""
    return lambda numbers, step: print(json.dumps({"step": step, **numbers}), file=file)


def to_mlflow() -> Log:
    """Log to MLflow; call this inside `with mlflow.start_run():`."""
    import mlflow

    return lambda numbers, step: mlflow.log_metrics(numbers, step=step)


def to_wandb(**options: Any) -> Log:
    """Log to a new run of Weights & Biases; `options` are those of `wandb.init`."""
    import wandb

    run = wandb.init(**options)
    return lambda numbers, step: run.log(numbers, step=step)


def to_tensorboard(folder: str) -> Log:
    """Write event files to a folder that `tensorboard --logdir` shows."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    return lambda numbers, step: [
        writer.add_scalar(name, x, step) for name, x in numbers.items()
    ]


def logging(log: Log) -> Callable[[Any], None]:
    """Return a callback that logs the metrics, the time, the staleness and the number of workers."""

    def tell(progress: Any) -> None:
        extra = {
            "time": progress.time,
            "staleness": progress.staleness,
            "workers": float(progress.workers),
        }
        # Commits are the steps of a tracker's x-axis; "time" is the run's own clock, without evaluations.
        log({**progress.metrics, **extra}, progress.commit)

    return tell


def main() -> None:
    """Make a short run that logs ten times."""
    problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    sgd = aq.AsyncSGD(h=1e-4, batch=20)
    callback = logging(to_json_lines(sys.stdout))
    aq.minimize(
        problem, sgd, engine=aq.Threads(2), commits=500, evaluate=50, callback=callback
    )


if __name__ == "__main__":
    main()
