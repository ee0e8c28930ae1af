"""`smpc-dp` and `python -m smpc_dp`: the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit; Ctrl-C gives exit code 130, also while modules are loaded."""
    try:
        # Loading takes most of a second, in which Ctrl-C is to end without a traceback too.
        from smpc_dp import cli

        code = cli.main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
