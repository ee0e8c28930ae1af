"""Makes the session and the files of some nodes in one folder, for trials on one machine.

Run: python -m digits.prepare FOLDER --nodes 4. Between hosts each node makes its own key: `smpc-dp keygen`.
"""

import argparse
from pathlib import Path

from smpc_dp.net.local import create_local_session
from smpc_dp.net.session_file import Timeouts

from .task import VALUES

PARAMETERS: dict[str, object] = {
    # One value for the metric "error".
    "length": VALUES + 1,
    "lower": -64.0,
    "upper": 64.0,
    "precision": 1e-6,
    "max_weight": 1000,
    "dropout": 0.25,
    "corrupt": 0.0,
    # A node may be lost in one round and not in the next: two such sums give away their difference.
    "same_survivors": False,
}
# A SuperNode starts a process for each message.
TIMEOUTS = Timeouts(connect=60.0, step=90.0)
NODE = """\
party = "node-{number}"
state = "{number}-state"
counter = "{number}-counter"

[train]
session = "session.toml"
metrics = {{error = [0.0, 1.0]}}
"""


def prepare(folder: Path, nodes: int) -> Path:
    """Return the session file; the node with partition i has the file i.toml."""
    names = [f"node-{number}" for number in range(nodes)]
    session = create_local_session(folder, names, PARAMETERS, timeouts=TIMEOUTS)
    for number in range(nodes):
        (folder / f"{number}-counter").mkdir()
        (folder / f"{number}.toml").write_text(NODE.format(number=number))
    return session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=4)
    arguments = parser.parse_args()
    print(prepare(arguments.folder.resolve(), arguments.nodes))


if __name__ == "__main__":
    main()
