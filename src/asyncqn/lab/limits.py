"""Limits of stability, by which an experiment judges the parameters of a run."""

from asyncqn.algorithms.stability import delay_limit as delay_limit
from asyncqn.algorithms.stability import largest_curvature as largest_curvature
