"""The terms that `smpc-dp init` writes: parameters with comments, and the options that they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from smpc_dp.engine.registry import session_protocol
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.identity.roster import Member
from smpc_dp.privacy.secagg_plan import part_of
from smpc_dp.records.parameters import RecordSettings
from smpc_dp.records.schema import SchemaSettings
from smpc_dp.secagg.noisy import NoisySettings
from smpc_dp.session.session_file import SessionFile, Timeouts, session_text
from smpc_dp.session.terms import check_terms
from smpc_dp.settings import meaning_of, read

Compute = Literal["average", "sum", "statistics"]

PROTOCOL = "secagg"
# A session file does not say it: parties may ask for sums and averages in one session.
SUM_IS_ASKED_FOR = "`smpc-dp run` and `smpc-dp party` take --operation sum: else they compute the average"
# Option of each key of a session file; a key within a table counts as the table's.
_OPTIONS = {
    "roster": "--parties",
    "parameters.dropout": "--lost",
    "parameters.corrupt": "--collude",
    "parameters.epsilon": "--epsilon",
    "parameters.delta": "--delta",
    "parameters.length": "--length",
    "parameters.lower": "--lower",
    "parameters.upper": "--upper",
    "parameters.kind": "--kind",
    "parameters.precision": "--precision",
    "parameters.max_weight": "--max-weight",
    "parameters.ask": "--ask",
    "parameters.records.columns": "--column",
    "parameters.records.max_rows": "--max-rows",
    "parameters.records.rows_expected": "--rows-expected",
}
# Names in the first line of a file.
_MOST_NAMES = 20


@dataclass
class Terms:
    """Answers about a new session: computation, parties, losses, colluders, and further parameters."""

    compute: Compute
    parties: Sequence[str]
    lost: int
    colluding: int
    parameters: dict[str, object] = field(default_factory=dict)

    def all_parameters(self) -> dict[str, object]:
        """Return the full `[parameters]` table; ConfigError for impossible losses or colluders."""
        shares = shares_of(self.lost, self.colluding, len(self.parties))
        records = self.parameters.get("records")
        rest = {key: value for key, value in self.parameters.items() if key != "records"}
        return rest | shares | ({} if records is None else {"records": records})

    def text(self, members: Sequence[Member] = (), timeouts: Timeouts | None = None) -> str:
        """Return the session file as text, with comments that explain each setting."""
        count = len(self.parties)
        table = settings_of(self.compute)
        comments = {key: meaning_of(table, key) for key in self.parameters}
        comments |= {
            f"records.{field.name}": meaning_of(SchemaSettings, field.name)
            for field in msgspec.structs.fields(SchemaSettings)
        }
        comments["dropout"] = f"{self.lost} of {count} parties may be lost"
        comments["corrupt"] = f"{self.colluding} of {count} parties may collude with the aggregator"
        comments["delta"] = "chance of more, beside epsilon"
        named = ", ".join(self.parties[:_MOST_NAMES]) + (", ..." if count > _MOST_NAMES else "")
        head = (
            f"# {self.compute.capitalize()}, planned for {count} parties: {named}\n"
            "# All members have the same file: they compare the words that `smpc-dp roster` prints of it.\n"
        )
        if self.compute == "sum":
            head += f"# {SUM_IS_ASKED_FOR}.\n"
        version = session_protocol(PROTOCOL).version
        return head + session_text(
            PROTOCOL,
            version,
            self.all_parameters(),
            members,
            timeouts,
            {k: v for k, v in comments.items() if v},
        )

    def checked(self) -> SessionFile:
        """Check the terms with stand-in members, and return the session; ConfigError names options."""
        text = self.text()
        try:
            return check_terms(text, self.parties)
        except ConfigError as error:
            raise ConfigError(map(at_option, error.issues)) from None


def settings_of(compute: Compute | None) -> type[msgspec.Struct]:
    """Return the settings class whose fields are the parameters of this kind of computation."""
    return RecordSettings if compute == "statistics" else NoisySettings


def check_setting(table: type[msgspec.Struct], key: str, value: object) -> None:
    """Raise ConfigError if a setting's value is wrong by itself, before other settings are known."""
    issues = [issue for issue in read(table, {key: value})[1] if issue.where == key]
    if issues:
        raise ConfigError(issues)


def shares_of(lost: int, colluding: int, parties: int) -> dict[str, object]:
    """Return the parameters `dropout` and `corrupt` for these counts; ConfigError if out of range."""
    return {
        "dropout": share_of(lost, parties, "--lost"),
        "corrupt": share_of(colluding, parties, "--collude"),
    }


def share_of(count: int, parties: int, option: str) -> float:
    """Return the shortest fraction of the parties that gives the count rounded down; ConfigError if unfit."""
    if not 0 <= count < parties:
        reason = f"{count} is not from 0 to {parties - 1}, of {parties} parties"
        raise ConfigError.at(option, reason, ConfigCheck.RANGE)
    shares: list[float] = [-(-count * 10**digits // parties) / float(10**digits) for digits in range(3, 17)]
    return next(share for share in shares if part_of(parties, share) == count)


def at_option(issue: ConfigIssue) -> ConfigIssue:
    """Return an issue renamed to the command-line option that sets its key, unchanged if there is none."""
    option = next((option for key, option in _OPTIONS.items() if issue.where.startswith(key)), None)
    return issue if option is None else issue._replace(where=f"{option} ({issue.where})")
