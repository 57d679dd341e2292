"""asyncqn: asynchronous stochastic quasi-Newton optimization, simulated and real, replayed to the bit."""

import lazy_loader

# The names stand in __init__.pyi.  Each is imported at its first use, so that a program pays for what it
# uses: numba, which takes longest, only where something is computed.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.2.0.dev0"
