"""The programs in examples/ do what their first lines promise."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from recommender_cases import TRAIN

from asyncqn.recommender.estimator import Recommender

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def program(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def request(app: Any, method: str, path: str, query: str = "") -> tuple[int, Any]:
    """One HTTP request as an ASGI server makes it: status and what the body says."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode()}
    asyncio.run(app(scope, receive, send))
    start, body = sent
    assert dict(start["headers"])[b"content-type"] == b"application/json"
    return start["status"], json.loads(body["body"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service") / "model"
    return Recommender(2, workers=1, passes=2).fit(TRAIN).save(folder)


def test_the_service_recommends_finds_like_items_and_learns_ratings(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASYNCQN_MODEL", str(place))
    app = program("service").app
    model = Recommender.load(place)
    user, item = TRAIN.user_ids[0].item(), TRAIN.item_ids[5].item()
    expected = [one._asdict() for one in model.recommend(user, 3)]
    assert request(app, "GET", "/recommend", f"user={user}&n=3") == (200, {"items": expected})
    expected = [one._asdict() for one in model.similar(item, 10)]
    assert request(app, "GET", "/similar", f"item={item}") == (200, {"items": expected})
    _, before = request(app, "GET", "/recommend", "user=900001&n=1")
    assert before["items"][0]["basis"] == "baseline"
    assert request(app, "POST", "/rate", f"user=900001&item={item}&rating=4.5") == (200, {"items": []})
    _, after = request(app, "GET", "/recommend", "user=900001&n=1")
    assert after["items"][0]["basis"] == "factors"


def test_the_service_answers_mistakes_with_one_sentence(place: Path) -> None:
    app = program("service").Service(Recommender.load(place))
    for method, path, query in (
        ("GET", "/recommend", ""),
        ("GET", "/recommend", "user=1&n=0"),
        ("GET", "/recommend", "user=1&n=x"),
        ("GET", "/similar", "item=nothing"),
        ("POST", "/rate", "user=1&item=2"),
        ("POST", "/rate", "user=1&item=2&rating=nan"),
    ):
        status, said = request(app, method, path, query)
        assert status == 400, (path, query)
        assert "\n" not in said["error"]
    assert request(app, "GET", "/")[0] == 404
    asyncio.run(app({"type": "lifespan"}, None, None))
