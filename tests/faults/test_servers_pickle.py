"""What a server sends to another's mpyc process is never unpickled: nothing of a pickle bomb runs."""

from __future__ import annotations

import asyncio
import base64
import pickle
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from smpc_dp.capabilities.servers.requests.child import Answer
from smpc_dp.capabilities.servers.requests.engine import Engine
from smpc_dp.capabilities.servers.secret_sharing.server import Job
from smpc_dp.capabilities.servers.statistics.plan import sum_program
from smpc_dp.errors import PeerFault
from smpc_dp_lab.bench.servers import split_records

SERVERS = ("server1", "server2", "server3")
# In a frame of mpyc: program counter (8 bytes), size of the payload (4 bytes), payload.
HEAD = struct.Struct("<qI")
# Before the first frame the party with the smaller number says it, with its keys for pseudorandom sharing.
HELLO_LEAST, HELLO_MOST = 2, 200


class Bomb:
    """Unpickled it writes a file, or where files cannot be written ends the process with code 77."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return exec, (f"try: open({self.path!r}, 'w').write('run')\nfinally: import os; os._exit(77)",)


class Frames:
    """Replaces the payload of every frame of one direction but the first, by which servers meet."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.seen = 0
        self._first = True

    def change(self, content: bytes) -> bytes:
        """Return what arrives in the place of `content`, a run of whole frames after the hello."""
        changed = bytearray()
        index = 0
        if self._first:
            self._first = False
            index = next(
                start for start in (0, *range(HELLO_LEAST, HELLO_MOST)) if self._fits(content, start)
            )
            changed += content[:index]
        while index + HEAD.size <= len(content):
            counter, size = HEAD.unpack_from(content, index)
            end = index + HEAD.size + size
            if self.seen:
                changed += HEAD.pack(counter, len(self.payload)) + self.payload
            else:
                changed += content[index:end]
            self.seen += 1
            index = end
        return bytes(changed)

    @staticmethod
    def _fits(content: bytes, start: int) -> bool:
        """Tell whether whole frames, each of at most 1 MiB, follow from `start` to the end."""
        index = start
        while index + HEAD.size <= len(content):
            size = HEAD.unpack_from(content, index)[1]
            if size > 1 << 20:
                return False
            index += HEAD.size + size
        return index == len(content)


async def compute(change: Callable[[str, str, bytes], bytes]) -> list[Answer | BaseException]:
    """Let three servers add up two records; `change` is given what goes from one to another."""
    engines: dict[str, Engine] = {}

    def sender(own: str) -> Callable[[str, bytes], Awaitable[None]]:
        async def send(peer: str, content: bytes) -> None:
            await engines[peer].feed(own, change(own, peer, bytes(content)))

        return send

    engines.update({name: Engine(SERVERS, name, sender(name)) for name in SERVERS})
    terms = sum_program("sum", 2, [(0, 9)], None).terms
    runs = (
        engines[name].run(Job(terms, own), 1, seconds=60, silence=5)
        for name, own in zip(SERVERS, split_records(terms, [[1], [2]], 3), strict=True)
    )
    return list(await asyncio.gather(*runs, return_exceptions=True))


async def test_a_pickle_bomb_of_a_server_runs_nothing_and_ends_the_computation(tmp_path: Path) -> None:
    """Once they have met, server1 sends server2 a bomb in the place of every share."""
    frames = Frames(pickle.dumps(Bomb(tmp_path / "mark")))

    def bombed(own: str, peer: str, content: bytes) -> bytes:
        return frames.change(content) if (own, peer) == ("server1", "server2") else content

    ended = await compute(bombed)
    assert frames.seen >= 2
    assert isinstance(ended[1], PeerFault)
    assert ended[1].culprit == "server1"
    # 77 is the bomb's.
    assert "77" not in str(ended[1])
    assert not (tmp_path / "mark").exists()


async def test_no_message_between_servers_is_a_pickle() -> None:
    """Pickles of protocol 2 and later begin with 0x80 and end with a full stop."""
    sent: list[bytes] = []

    def listen(_own: str, _peer: str, content: bytes) -> bytes:
        sent.append(content)
        return content

    for answer in await compute(listen):
        assert isinstance(answer, Answer), answer
        assert answer.values == ["3"]
    assert not any(b"\x80\x04\x95" in content or b"numpy" in content for content in sent)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "call",
    [
        "pickle.loads(bomb)",
        "pickle.load(io.BytesIO(bomb))",
        "pickle.Unpickler(io.BytesIO(bomb)).load()",
        "pickle._loads(bomb)",
        "pickle._load(io.BytesIO(bomb))",
        "pickle._Unpickler(io.BytesIO(bomb)).load()",
        "_pickle.loads(bomb)",
        "_pickle.load(io.BytesIO(bomb))",
        "_pickle.Unpickler(io.BytesIO(bomb)).load()",
        "mpyc_runtime.pickle.loads(bomb)",
        "np.load(io.BytesIO(bomb), allow_pickle=True)",
    ],
)
def test_a_process_that_refuses_pickle_unpickles_nothing(tmp_path: Path, call: str) -> None:
    """With mpyc loaded before or after: the refusal names itself, and the bomb's mark is not made."""
    bomb = base64.b64encode(pickle.dumps(Bomb(tmp_path / "mark")))
    code = (
        "import _pickle, base64, importlib, io, pickle, sys\n"
        "import numpy as np\n"
        "from smpc_dp.capabilities.servers.secret_sharing.sharing import PickleRefusedError, mpyc_arguments\n"
        "from smpc_dp.capabilities.servers.secret_sharing.sharing import refuse_pickle\n"
        "refuse_pickle()\n"
        "with mpyc_arguments('-M3', '-I0'): mpyc_runtime = importlib.import_module('mpyc.runtime')\n"
        f"bomb = base64.b64decode({bomb!r})\n"
        "try:\n"
        f"    {call}\n"
        "except PickleRefusedError: sys.exit(5)\n"
        "except Exception as error: sys.exit(5 if isinstance(error.__cause__, PickleRefusedError) else 6)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, check=False)
    assert (ended.returncode, (tmp_path / "mark").exists()) == (5, False), ended.stderr.decode()
