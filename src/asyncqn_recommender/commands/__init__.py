"""`asyncqn recommender COMMAND`: learn from ratings or clicks, update, evaluate, recommend, share ratings."""

MOVED = {
    "serve": "share', which gives ratings to workers; a model over HTTP is examples/service.py, an app for "
    "any ASGI server"
}
"""Commands that have another name now, with what their old name might have meant."""
