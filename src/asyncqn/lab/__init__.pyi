"""Public names of the laboratory: limits of the step size."""

from .limits import delay_limit, largest_curvature

__all__ = ["delay_limit", "largest_curvature"]
