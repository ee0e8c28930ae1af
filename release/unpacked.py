"""The program in the archive of `smpc-dp-verify`: the auditor, or `--unpack FOLDER` for what is beside it."""

from __future__ import annotations

import multiprocessing
import shutil
import sys
from pathlib import Path

# The folder in the archive of what is not the program: README, sample, licences, bill of materials.
BESIDE = "beside"


def main() -> int:
    """Run the command; return its exit code."""
    match sys.argv[1:]:
        case []:
            print(
                "usage: --unpack FOLDER writes README.txt and a sample log; --help says the rest",
                file=sys.stderr,
            )
            return 2
        case ["--unpack", folder]:
            try:
                shutil.copytree(Path(__file__).parent / BESIDE, folder)
            except OSError as error:
                print(f"error: {folder}: {error.strerror or error}", file=sys.stderr)
                return 1
            print(f"{folder}/README.txt says what to try")
            return 0
    # Not above: what builds the archive reads BESIDE, and has no auditor.
    from smpc_dp_verify.__main__ import main as audit

    return audit()


if __name__ == "__main__":
    multiprocessing.freeze_support()
    sys.exit(main())
