"""A saved recommender as a web service: an ASGI app that any ASGI server can run.

    ASYNCQN_MODEL=model uvicorn --app-dir examples service:app

GET /recommend?user=42&n=5 and GET /similar?item=7&n=5 list items; POST /rate?user=42&item=7&rating=4.5 adds
a rating of that user.  A wrong request gets status 400 and one sentence.
"""

import json
import os
from urllib.parse import parse_qs

from asyncqn_recommender import Recommender


class Service:
    """The ASGI callable around one model; a rating replaces the model, and requests under way keep theirs."""

    def __init__(self, model):
        self.model = model

    def answer(self, method, path, asked):
        """Return the status and the plain data for a request."""
        if (method, path) == ("GET", "/recommend"):
            found = self.model.recommend(asked["user"], int(asked.get("n", 10)))
        elif (method, path) == ("GET", "/similar"):
            found = self.model.similar(asked["item"], int(asked.get("n", 10)))
        elif (method, path) == ("POST", "/rate"):
            rating = [asked["user"]], [asked["item"]], [float(asked["rating"])]
            # `fold_in` returns a new model; the assignment replaces the old one at once.
            self.model, found = self.model.fold_in(rating), []
        else:
            return 404, {
                "error": f"there is no {method} {path}: see /recommend, /similar and /rate."
            }
        return 200, {"items": [item._asdict() for item in found]}

    async def __call__(self, scope, receive, send):
        # Servers also announce their start and stop, which need no reply.
        if scope["type"] != "http":
            return
        # The last of several equal keys counts.
        asked = {
            key: values[-1]
            for key, values in parse_qs(scope["query_string"].decode()).items()
        }
        try:
            status, content = self.answer(scope["method"], scope["path"], asked)
        except KeyError as error:
            status, content = 400, {"error": f"the request lacks {error.args[0]}."}
        except ValueError as error:  # BadInput is one, with a sentence for people
            status, content = 400, {"error": str(error)}
        headers = [(b"content-type", b"application/json")]
        await send(
            {"type": "http.response.start", "status": status, "headers": headers}
        )
        await send({"type": "http.response.body", "body": json.dumps(content).encode()})


if place := os.environ.get("ASYNCQN_MODEL"):
    app = Service(Recommender.load(place))
