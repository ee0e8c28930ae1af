"""Hosts as network namespaces, joined by cables: a host reaches its neighbours alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: str) -> None:
    """Run a command of the system; raise with what it printed if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def service(name: str) -> str:
    """Return the path of a program; without it the test fails."""
    folders = f"{os.environ['SMPC_DP_SERVICES']}:{os.environ['PATH']}:/usr/sbin:/sbin"
    path = shutil.which(name, path=folders)
    assert path is not None, f"missing: {name}"
    return path


class Hosts:
    """Network namespaces and the processes in them, all of which end with `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._prefix = f"smpc{os.getpid() % 100_000}-"
        self._cables = 0
        self._names: list[str] = []
        self._known: dict[str, str] = {}
        self.processes: list[asyncio.subprocess.Process] = []

    def add(self, name: str) -> None:
        """Add a host that has itself alone."""
        run("ip", "netns", "add", self._prefix + name)
        self._names.append(name)
        run("ip", "-n", self._prefix + name, "link", "set", "lo", "up")

    def join(self, one: str, other: str, network: str) -> tuple[str, str]:
        """Join two hosts by a cable, and return their addresses: `network`.1 and `network`.2."""
        self._cables += 1
        ends = [f"v{os.getpid() % 100_000}{side}{self._cables}" for side in "ab"]
        run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        addresses = f"{network}.1", f"{network}.2"
        for name, end, address in zip((one, other), ends, addresses, strict=True):
            run("ip", "link", "set", end, "netns", self._prefix + name)
            run("ip", "-n", self._prefix + name, "addr", "add", f"{address}/24", "dev", end)
            run("ip", "-n", self._prefix + name, "link", "set", end, "up")
            # Of a host with one cable.
            self._known[name] = end
        return addresses

    def cut(self, name: str) -> None:
        """Cut the cable of a host."""
        run("ip", "-n", self._prefix + name, "link", "set", self._known[name], "down")

    def mend(self, name: str) -> None:
        """Join the cable of a host again."""
        run("ip", "-n", self._prefix + name, "link", "set", self._known[name], "up")

    async def start(
        self,
        host: str,
        *command: str,
        environment: Mapping[str, str] | None = None,
        names: str = "",
        log: str = "",
        pipes: bool = False,
        folder: Path | None = None,
    ) -> asyncio.subprocess.Process:
        """Start a process on a host; `names`: lines of its /etc/hosts; `log`: file of what it prints."""
        file = self._folder / f"{host}.hosts"
        file.write_text(f"127.0.0.1 localhost\n{names}\n")
        # Without a resolver: a name that is not in the file is unknown at once.
        script = f'mount --bind {file} /etc/hosts && mount --bind /dev/null /etc/resolv.conf && exec "$@"'
        inside = (
            "nsenter",
            f"--net=/run/netns/{self._prefix}{host}",
            "unshare",
            "--mount",
            "sh",
            "-c",
            script,
        )
        with (self._folder / (log or f"{host}.log")).open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(*inside, "sh", *command),
                env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
                stdin=asyncio.subprocess.PIPE if pipes else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if pipes else output,
                stderr=output,
                cwd=folder,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    async def stop(self, process: asyncio.subprocess.Process, number: int = signal.SIGTERM) -> None:
        """End a process that `start` has started, and what it has started."""
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            try:
                await asyncio.wait_for(process.wait(), 10.0)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def close(self) -> None:
        """End all processes, and remove the hosts."""
        for process in reversed(self.processes):
            await self.stop(process, signal.SIGKILL)
        for name in self._names:
            run("ip", "netns", "del", self._prefix + name)
