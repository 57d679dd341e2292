"""`asyncqn recommender COMMAND`: learn from ratings or clicks, evaluate, recommend, serve ratings."""
