"""Makes the session and the files of some nodes in one folder, for trials on one machine.

Run: python -m digits.prepare FOLDER --nodes 4. Between hosts each node makes its own key: `smpc-dp keygen`.
"""

import argparse
from pathlib import Path

from smpc_dp.session.local import Timeouts, create_local_session

from .task import VALUES

PARAMETERS: dict[str, object] = {
    "lower": -64.0,
    "upper": 64.0,
    "precision": 1e-6,
    "max_weight": 1000,
    # One of four nodes may be lost. Of four none may collude with the server then: of five one may.
    "dropout": 0.25,
    "corrupt": 0.0,
    # A node may be lost in one round and not in the next: two such sums give away their difference.
    "same_survivors": False,
}
# Seconds: a SuperNode starts a process for each message; and each of a million values takes a node some more.
CONNECT, STEP, FOR_MILLION = 60.0, 90.0, 10.0
NODE = """\
party = "node-{number}"
state = "{number}-state"
counter = "{number}-counter"

[train]
session = "session.toml"
metrics = {{error = [0.0, 1.0]}}
"""


def prepare(folder: Path, nodes: int, padding: int = 0) -> Path:
    """Return the session file; the node with partition i has the file i.toml.

    `padding`: of `task.initial`.
    """
    names = [f"node-{number}" for number in range(nodes)]
    # One value is for the metric "error".
    parameters = PARAMETERS | {"length": VALUES + padding + 1}
    timeouts = Timeouts(connect=CONNECT, step=STEP + FOR_MILLION * nodes * padding / 1e6)
    session = create_local_session(folder, names, parameters, timeouts=timeouts)
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
