"""`asyncqn recommender COMMAND`: learn from ratings or clicks, update, evaluate, recommend, share ratings."""

MOVED = {
    "serve": "share', which gives ratings to workers; a model over HTTP is examples/service.py, an app for "
    "any ASGI server"
}
"""Commands that were renamed.  A value ends the sentence "'recommender NAME' is now 'recommender ..." and so
contains its closing quote."""
