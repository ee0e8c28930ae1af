"""Flower's averages as secure sums: the server sees no node's model, metric or number of examples.

`SecureGrid` wraps the Grid of a ServerApp, which is the untrusted aggregator; `secure_mod` answers in the
ClientApp of each node. Guide: docs/guides/integrations.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smpc_dp.integrations.flower.averages import Average
    from smpc_dp.integrations.flower.grid import SecureGrid, Terms
    from smpc_dp.integrations.flower.mod import secure_mod
else:
    from importlib import import_module

    # Loaded at their first use: the other modules of this package need no Flower.
    _HOME_OF = {"Average": "averages", "SecureGrid": "grid", "Terms": "grid", "secure_mod": "mod"}

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = ["Average", "SecureGrid", "Terms", "secure_mod"]
