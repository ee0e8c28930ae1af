"""Protocols as state machines without input and output: roles, runs, saved states, their registry."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smpc_dp.engine.public import step, table
    from smpc_dp.engine.seal import open_state, seal_state
else:
    # Loaded at their first use: most importers of a protocol need none of them.
    _HOME_OF = {
        "open_state": "smpc_dp.engine.seal",
        "seal_state": "smpc_dp.engine.seal",
        "step": "smpc_dp.engine.public",
        "table": "smpc_dp.engine.public",
    }

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module 'smpc_dp.engine' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = ["open_state", "seal_state", "step", "table"]
