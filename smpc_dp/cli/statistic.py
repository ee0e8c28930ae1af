"""A pairwise statistic on the command line, as `smpc-dp party` and `smpc-dp run` take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, PrivacyError
from smpc_dp.session.inputs import read_table, read_vector
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.tasks import find_task

if TYPE_CHECKING:
    from smpc_dp.capabilities.pairs.kernels.fields import Field
    from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
    from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
    from smpc_dp.session.host import HostMember

KernelName = Annotated[
    str | None, typer.Option("--statistic", help="Estimate a pairwise statistic: kendall_tau, auc, gini, …")
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--field", help="Statistic: LOW:HIGH or LOW:HIGH:STEP of each value of a record."),
]
Epsilon = Annotated[float | None, typer.Option(help="Statistic: budget of a record, for all its pairs.")]
Delta = Annotated[float | None, typer.Option(help="Statistic: above 0 for noise 'gaussian'.")]
Partners = Annotated[int | None, typer.Option(help="Statistic: pairs of each party, P; default planned.")]
NoiseName = Annotated[
    str | None, typer.Option("--noise", help="Statistic: laplace, randomised_response or gaussian.")
]
Covert = Annotated[
    int | None,
    typer.Option(
        "--covert",
        help="Statistic: copies of each pair's circuit, of which the partner checks all but one, 2 to 64; "
        "0: garblers are semi-honest; default 4.",
    ),
]
SecurityName = Annotated[
    str | None,
    typer.Option(
        "--security",
        help="Statistic: covert (default), semi-honest, or malicious: a cheat passes with probability 2^-40, "
        "and names nobody.",
    ),
]


@dataclass(frozen=True)
class Statistic:
    """A statistic of pairs requested on the command line, checked as far as possible without data."""

    kernel: Kernel
    options: Mapping[str, Any]
    public_label: int | None = None

    @classmethod
    def requested(
        cls,
        name: str | None,
        fields: Sequence[str] | None,
        epsilon: float | None,
        delta: float | None,
        partners: int | None,
        noise: str | None,
        covert: int | None,
        security: str | None,
    ) -> Statistic | None:
        """Return the statistic that the options ask for, None without a name; ConfigError if wrong."""
        given = {"--field": fields or None, "--epsilon": epsilon, "--delta": delta}
        given |= {"--partners": partners, "--noise": noise, "--covert": covert}
        given |= {"--security": security}
        if name is None:
            stray = [
                ConfigIssue(option, "is for --statistic", ConfigCheck.UNSUPPORTED)
                for option in given
                if given[option] is not None
            ]
            if stray:
                raise ConfigError(stray)
            return None
        if epsilon is None:
            raise ConfigError.at("--epsilon", "a statistic needs one", ConfigCheck.MISSING)
        find_task("pairs")
        # Not at the top: most calls are sums.
        from smpc_dp.capabilities.pairs.kernels.named import find_kernel, requires_fields

        if not fields and requires_fields(name):
            raise ConfigError.at(
                "--field", f"'{name}' needs the bounds of its values, LOW:HIGH", ConfigCheck.MISSING
            )
        kernel = find_kernel(name, *map(_field, fields or ()))
        options: dict[str, Any] = {"epsilon": epsilon, "delta": delta or 0.0, "P": partners}
        options |= {"noise": noise or "laplace", "covert": covert, "security": security}
        return cls(kernel, options)

    def check(self, session: SessionFile) -> None:
        """Raise ConfigError if a session's pairs of parties cannot have this budget, noise or partners.

        In a session with servers these check it.
        """
        if session.topology == "servers":
            return
        from smpc_dp.capabilities.pairs.garbled.params import copies_of
        from smpc_dp.capabilities.pairs.statistics.compiled import plan_statistic

        options, parties = self.options, len(session.roster.parties)
        plan_statistic(
            self.kernel,
            parties,
            options["epsilon"],
            options["delta"],
            partners=options["P"],
            noise=options["noise"],
            covert=copies_of(options["security"], options["covert"]),
            malicious=options["security"] == "malicious",
        )

    def marked(self, public_label: int | None) -> Statistic:
        """Return the statistic with this party's public label; ConfigError if missing or superfluous."""
        if (self.kernel.labels == "public") == (public_label is None):
            requirements = (
                "needs each party's public label" if public_label is None else "has no public labels"
            )
            raise ConfigError.at("label", f"{self.kernel.name} {requirements}", ConfigCheck.UNSUPPORTED)
        if public_label not in (None, 0, 1):
            raise ConfigError.at("label", f"must be 0 or 1, is {public_label}", ConfigCheck.RANGE)
        return replace(self, public_label=public_label)

    def read(self, file: Path) -> tuple[float, ...]:
        """Return the record in a party's file; ConfigError for its length, PrivacyError if out of bounds."""
        record = tuple(read_vector(file).tolist())
        if len(record) != len(self.kernel.fields):
            reason = (
                f"a record of {self.kernel.name} has {len(self.kernel.fields)} values, here are {len(record)}"
            )
            raise ConfigError.at(str(file), reason, ConfigCheck.SHAPE)
        try:
            self.kernel.codes(tuple([value] for value in record))
        except PrivacyError as error:
            raise PrivacyError(f"{file}: {error}", code=error.code) from None
        return record


def check_records(statistic: Statistic, files: Mapping[str, Path], labels: Mapping[str, int]) -> None:
    """Read all parties' records and labels, only to raise errors of wrong ones before a run."""
    for name, file in files.items():
        statistic.marked(labels.get(name)).read(file)


async def take_part(
    statistic: Statistic, host: HostMember, session: SessionFile, number: int | None
) -> StatisticResult:
    """Check one party's input for a statistic of pairs, connect, and return the estimate; or raise.

    `number`: of the request; None: the first one, or with a state that under way, or the next.
    """
    statistic.check(session)
    record = statistic.read(host.input_file)
    if number is None and host.state is not None:
        number = host.state.following(host.state.number)
    async with host.connect() as opened:
        return await opened.pairwise(
            statistic.kernel,
            record,
            public_label=statistic.public_label,
            number=number,
            **statistic.options,
        )


def read_labels(path: Path | None, parties: Sequence[str]) -> dict[str, int]:
    """Read the public labels of the parties from a JSON file; none without a file."""
    return {} if path is None else read_table(path, parties, "label")


def arguments(
    statistic: Statistic, name: str, fields: Sequence[str] | None, public_label: int | None
) -> list[str]:
    """Return the command-line options with which one party requests this statistic."""
    options = statistic.options
    result = ["--statistic", name, "--epsilon", repr(options["epsilon"]), "--delta", repr(options["delta"])]
    result += ["--noise", str(options["noise"])]
    for field in fields or ():
        result += ["--field", field]
    if options["P"] is not None:
        result += ["--partners", str(options["P"])]
    if options["covert"] is not None:
        result += ["--covert", str(options["covert"])]
    if options["security"] is not None:
        result += ["--security", str(options["security"])]
    return result if public_label is None else [*result, "--public-label", str(public_label)]


def _field(text: str) -> Field:
    """Return the field (range and step, default 1) that a text LOW:HIGH[:STEP] gives; else ConfigError."""
    from smpc_dp.capabilities.pairs.kernels.fields import Field

    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3):
        raise ConfigError.at("--field", f"{text[:80]!r} is not LOW:HIGH or LOW:HIGH:STEP", ConfigCheck.FORMAT)
    low, high, step = (*numbers, 1.0)[:3]
    return Field(low, high, step)
