"""`smpc-dp` and `python -m smpc_dp`: the command line."""

from __future__ import annotations

import gc
import sys

# Objects that are made between two searches for cycles. Importing makes many, and none to be freed: with
# Python's default of 700 a command takes a tenth longer to start.
COLLECT = 20_000


def main() -> None:
    """Run the `smpc-dp` command line with the arguments of this process, and exit with its status.

    Ctrl-C gives exit code 130, also while modules are loaded.
    """
    gc.set_threshold(COLLECT)
    try:
        # Loading takes most of a second; Ctrl-C must end it without a traceback.
        from smpc_dp import cli

        code = cli.main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
