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


@dataclass(frozen=True)
class Statistic:
    """A requested statistic, checked as far as possible without a record."""

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
    ) -> Statistic | None:
        """Return the statistic of the options, None without `--statistic`; raise ConfigError if wrong."""
        given = {"--field": fields or None, "--epsilon": epsilon, "--delta": delta}
        given |= {"--partners": partners, "--noise": noise, "--covert": covert}
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
        return cls(kernel, options | {"noise": noise or "laplace", "covert": covert})

    def check(self, session: SessionFile) -> None:
        """Raise ConfigError for a budget, noise or number of partners that pairs cannot have.

        In a session with servers these check it.
        """
        if session.topology == "servers":
            return
        from smpc_dp.capabilities.pairs.statistics.compiled import plan_statistic

        options, parties = self.options, len(session.roster.parties)
        plan_statistic(
            self.kernel,
            parties,
            options["epsilon"],
            options["delta"],
            partners=options["P"],
            noise=options["noise"],
            covert=options["covert"] or 0,
        )

    def marked(self, public_label: int | None) -> Statistic:
        """Return the statistic for a party with this public label; raise ConfigError if one is needed."""
        if (self.kernel.labels == "public") == (public_label is None):
            requirements = (
                "needs each party's public label" if public_label is None else "has no public labels"
            )
            raise ConfigError.at("label", f"{self.kernel.name} {requirements}", ConfigCheck.UNSUPPORTED)
        if public_label not in (None, 0, 1):
            raise ConfigError.at("label", f"must be 0 or 1, is {public_label}", ConfigCheck.RANGE)
        return replace(self, public_label=public_label)

    def read(self, file: Path) -> tuple[float, ...]:
        """Read the record in a file; raise PrivacyError or ConfigError if it is not one of the kernel's."""
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
    """Read the records of all parties, with the labels of those that have one; errors as of `Statistic`."""
    for name, file in files.items():
        statistic.marked(labels.get(name)).read(file)


async def take_part(
    statistic: Statistic, host: HostMember, session: SessionFile, number: int | None
) -> StatisticResult:
    """Check everything of one party, then connect and estimate.

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
    """Return the options of `smpc-dp party` for this statistic."""
    options = statistic.options
    result = ["--statistic", name, "--epsilon", repr(options["epsilon"]), "--delta", repr(options["delta"])]
    result += ["--noise", str(options["noise"])]
    for field in fields or ():
        result += ["--field", field]
    if options["P"] is not None:
        result += ["--partners", str(options["P"])]
    if options["covert"] is not None:
        result += ["--covert", str(options["covert"])]
    return result if public_label is None else [*result, "--public-label", str(public_label)]


def _field(text: str) -> Field:
    """Parse a field LOW:HIGH:STEP."""
    from smpc_dp.capabilities.pairs.kernels.fields import Field

    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3):
        raise ConfigError.at("--field", f"{text[:80]!r} is not LOW:HIGH or LOW:HIGH:STEP", ConfigCheck.FORMAT)
    low, high, step = (*numbers, 1.0)[:3]
    return Field(low, high, step)
