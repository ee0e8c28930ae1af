"""Lines about this host: the member's files, folders and port."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, SmpcError
from smpc_dp.identity.address import WebAddress, is_web_address, split_address
from smpc_dp.identity.roster import Member
from smpc_dp.session.charging import open_ledger
from smpc_dp.session.check.folders import folder_line
from smpc_dp.session.check.lines import SKIPPED, Line, brief
from smpc_dp.session.member import Membership, default_key
from smpc_dp.session.refusals import evidence_file
from smpc_dp.session.saved_session import LOCK, read_owner
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.tasks import task_of
from smpc_dp.transport.inquiry import check_port
from smpc_dp.transport.tls import check_clock
from smpc_dp.web_settings import WebSettings

_PORTS = {
    errno.EADDRNOTAVAIL: "This host has no such address. Behind NAT or in a container give --listen "
    "0.0.0.0:{port}, behind a web server on this host --listen 127.0.0.1:8000.",
    errno.EACCES: "Ports below 1024 are for root: take another one, or give the process the capability "
    "CAP_NET_BIND_SERVICE.",
}
_PORT = (
    "`ss -ltnp 'sport = :{port}'` shows the process that has it: end that, or take another port in the "
    "session file of all members."
)

_NAME = (
    "This host does not know that name: give --listen 0.0.0.0:{port}, or correct the address in the session "
    "file."
)


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Options of `smpc-dp party` for one member: its files, folders and addresses, to be checked."""

    key: Path | None = None
    listen: str | None = None
    ledger: Path | None = None
    state: Path | None = None
    counter: Path | None = None
    board: Path | None = None
    web: WebSettings | None = None


@dataclass(frozen=True)
class Host:
    """One member's files and settings on this host, with the checks of `smpc-dp check`."""

    path: Path
    session: SessionFile
    member: Member
    options: HostOptions

    @property
    def key_file(self) -> Path:
        """The path of the member's key file."""
        return self.options.key or default_key(self.path, self.member.name)

    def membership(self) -> Membership:
        """Load the member's session and key, and return them; raises an error if they are invalid."""
        return Membership.load(
            self.path, self.member.name, self.options.key, self.member.role, self.session, self.options.web
        )

    def lines(self) -> Iterator[Line]:
        """Yield the results of checking the clock, and the member's key, ledger and folders."""
        try:
            check_clock()
        except LocalError as error:
            yield Line("clock", "fix", str(error), "Set the clock by NTP; `timedatectl` shows it.")
        key = self._key()
        yield key
        yield folder_line("key folder", self.key_file.absolute().parent)
        yield from self._evidence()
        ledger, state, counter = self.options.ledger, self.options.state, self.options.counter
        if ledger is not None:
            yield folder_line("ledger folder", ledger.absolute().parent)
            # What it must afford follows from the membership.
            yield self._ledger(ledger) if key.state == "ok" else Line("ledger", "skipped", SKIPPED)
        if state is not None:
            yield folder_line("state", state, is_made=True)
            yield from self._state(state)
        if counter is not None:
            yield folder_line("counter", counter)
        if self.member.role == "aggregator" and key.state == "ok":
            yield from self._aggregator_folders()

    def port(self) -> tuple[Line, bool]:
        """Return (result of checking the listening port, whether another process uses it).

        Raises ConfigError for an address to listen on that is none.
        """
        address = self.options.listen or self.member.address or ""
        try:
            is_web = self.options.listen is None and is_web_address(address)
            host, port = WebAddress.parse(address)[:2] if is_web else split_address(address)
        except ValueError as error:
            raise ConfigError.at("--listen", str(error), ConfigCheck.FORMAT) from None
        try:
            check_port(host, port)
        except OSError as error:
            todo = _NAME if isinstance(error, socket.gaierror) else _PORTS.get(error.errno or 0, _PORT)
            todo = todo.format(port=port)
            line = Line("port", "fix", f"{address}: cannot listen there ({error.strerror})", todo)
            return line, error.errno == errno.EADDRINUSE
        return Line("port", "ok", f"{address}: no process listens there yet"), False

    def _key(self) -> Line:
        """Return the result of checking the member's key file."""
        path, name = self.key_file, self.member.name
        try:
            self.membership().checkpoint_identity()
        except (ConfigError, LocalError) as error:
            if _is_there(path) is False:
                text, todo = (
                    f"{path}: there is no such file",
                    (
                        f"Bring the file that `smpc-dp keygen {name}` wrote, or name it with --key. If it is "
                        "lost, make a new one: all members need its entry in the session file."
                    ),
                )
            else:
                text, todo = (
                    str(error),
                    (
                        f"It must be the key file of '{name}' in this session, for the user of smpc-dp "
                        f"alone (`chmod 600 {path}`). `smpc-dp keygen {name} --show --out {path.parent}` "
                        f"prints the entry of {name}.key there, to compare with the session's."
                    ),
                )
            return Line("key", "fix", text, todo)
        return Line("key", "ok", f"{path}: the key of '{name}', {brief(self.member.public_key)}")

    def _evidence(self) -> Iterator[Line]:
        """Yield a line if the party has stored evidence against the aggregator, and refuses sums."""
        evidence = evidence_file(self.key_file, self.member.name, self.session.digest)
        if self.member.role == "party" and _is_there(evidence) is True:
            todo = (
                f"Give it to all members, who check it (`smpc-dp audit {evidence} --session {self.path}`); "
                "make a new session with another aggregator."
            )
            yield Line("key folder", "fix", f"{evidence}: this party refuses further sums", todo)

    def _ledger(self, path: Path) -> Line:
        """Return the result of checking the party's ledger, without charging it."""
        try:
            ledger = open_ledger(path, self.member.name)
            task, membership = task_of(self.session), self.membership()
            task.check_ledger(ledger, membership)
            if task.has_vectors:
                ledger.check([membership.event()])
        except SmpcError as error:
            todo = (
                f"`smpc-dp ledger show {path}` shows what is spent. Name the ledger of these data; "
                "`smpc-dp ledger create` makes one where there has been none."
            )
            if self._is_exact:
                todo += " The results of this session are exact: no budget pays for them, leave --ledger out."
            return Line("ledger", "fix", str(error), todo)
        if _is_locked(path.with_name(path.name + ".lock")):
            return Line(
                "ledger", "note", f"{path}: another process has its lock", "Right while the party runs."
            )
        affords = ", and affords a request" if task.has_vectors else ""
        return Line("ledger", "ok", f"{path}: the ledger of '{self.member.name}'{affords}")

    @property
    def _is_exact(self) -> bool:
        """Whether the session releases a sum without differential privacy."""
        return task_of(self.session).has_vectors and self.membership().event().exact

    def _state(self, folder: Path) -> Iterator[Line]:
        """Yield a line if the state folder is of another member or session, or is locked."""
        name = self.member.name
        try:
            owner = read_owner(folder)
        except LocalError as error:
            yield Line("state", "fix", str(error), "Name a folder of this member's own.")
            return
        if owner is not None and (owner.session, owner.member) != (self.session.digest.hex(), name):
            text = f"{folder}: is of '{owner.member}' in the session {owner.session[:16]}…"
            todo = f"Name a folder of '{name}' for this session alone; a new one is made at the start."
            yield Line("state", "fix", text, todo)
            return
        if _is_locked(folder / LOCK):
            todo = f"Right while '{name}' runs; two processes with one state are refused."
            yield Line("state", "note", f"{folder}: another process has its lock", todo)

    def _aggregator_folders(self) -> Iterator[Line]:
        """Yield the results of checking the folders that only an aggregator needs."""
        if self.session.is_logged:
            board = self.options.board or self.path.absolute().parent / "board"
            yield folder_line("logs", board, is_made=True)
        try:
            self.membership().endpoint(aggregator=True)
        except LocalError as error:
            todo = "Free some room, or set TMPDIR to a folder on a disk that has it."
            yield Line("temporary files", "fix", str(error), todo)


def _is_there(path: Path) -> bool | None:
    """Return whether a file exists; None if that cannot be determined."""
    try:
        return path.exists()
    except OSError:
        return None


def _is_locked(path: Path) -> bool:
    """Return whether another process has locked a file; false for a missing file."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # Shared: another check at the same time is no process of the member.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # Without locks there: the line of the folder says so.
        return False
    finally:
        os.close(lock)
    return False
