"""What the manifest in a loaded run or checkpoint must at least say."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class PotentialEntry(msgspec.Struct):
    """What a manifest says of the potential."""

    name: str
    dim: Count
    n_data: Count
    reference: dict[str, Any] | None


class AlgorithmEntry(msgspec.Struct):
    """What a manifest says of the algorithm."""

    kind: str
    parameters: dict[str, Any] | None


class EngineEntry(msgspec.Struct):
    """What a manifest says of the engine, as far as a replay or a resumed run needs it."""

    kind: str
    workers: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0
    wire: str | None = None


class SegmentEntry(msgspec.Struct):
    """What a manifest says of a part of the run; see `runs.segments`."""

    from_commit: Count
    from_row: Count | None
    potential: PotentialEntry
    algorithm: AlgorithmEntry
    wire: str
    data: Count


class Manifest(msgspec.Struct):
    """What a loaded manifest must at least say."""

    potential: PotentialEntry
    algorithm: AlgorithmEntry
    engine: EngineEntry
    seed: int
    commits: Count
    evaluate: Annotated[int, msgspec.Meta(ge=1, le=2**62)] | None
    versions: dict[str, Any]
    stopping: dict[str, Any] = {}
    segments: list[SegmentEntry] = []
