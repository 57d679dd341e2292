"""`asyncqn recommender COMMAND`: learn from ratings or clicks, and recommend items."""
