"""A party's session: connect once, then compute sums and averages together with the others."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, cast

from smpc_dp.errors import (
    Code,
    ConfigCheck,
    ConfigError,
    ConfigIssue,
    OtherRequestError,
    PrivacyError,
    SmpcError,
    TimeoutFault,
)
from smpc_dp.net.charging import charge_run, open_ledger
from smpc_dp.net.events import Event, OnEvent, ignore, with_logging
from smpc_dp.privacy.guarantee import BUDGET

if TYPE_CHECKING:
    # `connect` loads the modules that the session needs; those that only some requests need are loaded by
    # them.
    from numpy.typing import ArrayLike

    from smpc_dp.encoding import RingVector
    from smpc_dp.kernels.kernel import Kernel
    from smpc_dp.learn.own import LocalFunction, Metric
    from smpc_dp.learn.requirements import Learned, OnStep
    from smpc_dp.net.connection import AggregatorConnection, Connection
    from smpc_dp.net.evaluation import Evaluations
    from smpc_dp.net.member import Membership
    from smpc_dp.net.planned import SessionPlan
    from smpc_dp.net.served_log import ServedLog
    from smpc_dp.net.servers.connection import ServersConnection
    from smpc_dp.net.transport.tls import Contexts
    from smpc_dp.privacy.accountant.events import Event as ReleaseEvent
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.accountant.receipt import Receipt, SpentBudget
    from smpc_dp.privacy.budget import Budget
    from smpc_dp.privacy.circuit_noise import NoiseKind
    from smpc_dp.protocols.garbled.evaluation import AnyCircuit, Evaluation, Input, Role
    from smpc_dp.protocols.garbled.params import Mode, Output
    from smpc_dp.protocols.record_result import RecordResult
    from smpc_dp.protocols.records import RecordParameters
    from smpc_dp.protocols.result import Outcome, Result
    from smpc_dp.protocols.secret_sharing.terms import PairDistribution
    from smpc_dp.protocols.session_protocol import MakeParty
    from smpc_dp.protocols.ustatistic.result import StatisticResult
    from smpc_dp.records.table import Source, Table
    from smpc_dp.statistics.reports import SentReport
    from smpc_dp.statistics.similarity import Similarities
    from smpc_dp.trees import Bounds

Kind = Literal["sum", "average"]
Engine = Literal["garbled", "mpyc"]
LABEL_LIMIT = 200
# Where the structure of a tree is in the operation too.
TREE_LABEL_LIMIT = 64
# Requests are numbered in 31 bits: servers tag mpyc's bytes with one more. There is a number after the last.
MOST_REQUESTS = (1 << 31) - 2


class Session:
    """One party's open session. Made by `connect` or `open`; its calls are for one task at a time."""

    def __init__(
        self,
        membership: Membership,
        connection: Connection,
        on_event: OnEvent,
        ledger: Ledger | None = None,
        rows: ReadyRows | None = None,
    ) -> None:
        self._membership = membership
        self._rows = rows
        self._ledger = ledger
        self._connection = connection
        self._evaluations: Evaluations | None = None
        self._on_event = on_event
        self._request = self._charged = 0
        # Of a call for an earlier request than the others'.
        self._behind: OtherRequestError | TimeoutFault | None = None
        self._closed = False
        self._process = os.getpid()

    @classmethod
    async def open(
        cls,
        session: str | os.PathLike[str],
        party: str,
        *,
        key: str | os.PathLike[str] | None = None,
        ledger: str | os.PathLike[str] | None = None,
        listen_on: str | None = None,
        on_event: OnEvent = ignore,
        role: MakeParty | None = None,
        table: Source | Table | None = None,
    ) -> Session:
        """Connect as `connect` does, and return a session that stays open until `close`.

        For sessions that no block of code spans, such as one of several cells of a notebook. Arguments and
        errors as of `connect`.
        """
        # Not at the top: a program that may connect does not yet pay for what a party needs.
        from smpc_dp.net.member import Membership
        from smpc_dp.net.opening import open_connection
        from smpc_dp.net.planned import UnchargedWarning, warn_of_noise
        from smpc_dp.net.tasks import task_of

        on_event = with_logging(on_event)
        membership = Membership.load(session, party, key)
        noisy = membership.session.parameters.keys() & {"epsilon", BUDGET}
        warn_of_noise(membership.session)
        if noisy and ledger is None:
            reason = f"{party}: without a ledger, what the session's requests cost is charged nowhere"
            warnings.warn(reason, UnchargedWarning, stacklevel=2)
        book = None if ledger is None else await asyncio.to_thread(open_ledger, ledger, party)
        if book is not None:
            # A ledger of another unit or relation, or a spent one, never disturbs the others.
            await asyncio.to_thread(task_of(membership.session).check_ledger, book, membership)
        rows = None if table is None else await asyncio.to_thread(prepared_rows, table, membership)
        connection = await open_connection(membership, on_event, listen_on, role)
        return cls(membership, connection, on_event, book, rows)

    async def close(self) -> None:
        """Send what waits, and leave the session; raise ConfigError if it is closed already."""
        self.check_open()
        self._closed = True
        if self._evaluations is not None:
            await asyncio.to_thread(self._evaluations.close)
        await self._connection.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def check_process(self) -> None:
        """Raise ConfigError in another process than the session's own, such as one that was forked."""
        if os.getpid() != self._process:
            reason = (
                f"{self.party}: is of process {self._process}, which was forked: open one in this process"
            )
            raise ConfigError.at("session", reason, ConfigCheck.CONFLICT)

    def check_open(self) -> None:
        """Raise ConfigError if the session is closed, or of another process."""
        self.check_process()
        if self._closed:
            reason = f"{self.party}: is closed; open it again with Session.open or connect"
            raise ConfigError.at("session", reason, ConfigCheck.CONFLICT)

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"Session({self.party!r}, {self._request} requests{closed})"

    @property
    def party(self) -> str:
        """The party's name."""
        return self._membership.name

    @property
    def length(self) -> int:
        """Coordinates of the session's vectors."""
        return self._membership.encoding.length

    @property
    def max_weight(self) -> int:
        """The largest weight of a party; 0 in a session without weights."""
        return self._membership.encoding.max_weight

    async def sum(
        self,
        vector: ArrayLike,
        *,
        weight: float | None = None,
        clip: bool = False,
        label: str = "",
        number: int | None = None,
        expect: Mapping[str, object] | None = None,
    ) -> Result:
        """Return the exact sum of the survivors' vectors (times their weights, if the session has weights).

        The n-th call of one party goes with the n-th call of the others, also after a call that raised.
        A vector given for one request is never part of another one.

        Args:
            vector: shape (length,), float64 or integers as the session says, within its bounds.
            weight: this party's secret whole number in [0, max_weight]; needed if the session has weights.
            clip: clip values to the bounds, and say in the result how many were; otherwise they are refused.
            label: a name of this request, in at most 200 characters that all members may read ("round 7"),
                without blanks around it.
                Parties that call with another label, or ask for an average where others ask for a sum, are
                not added up with them.
            number: of the request that the vector is for, above that of the last call; by default the next
                one. Needed after OtherRequestError.
            expect: required content of the session file: "protocol", "version" and keys of `[parameters]`
                with their values as written there, None for a key that must be absent; other keys are not
                compared. If it differs, nothing is sent.

        Raises:
            ConfigError, PrivacyError: vector, weight or ledger is refused; others are sent the code `own`.
            OtherRequestError: most others ask for a later request, as after a restart of this process, or
                with another label. Compute the vector of request `next`, and call again with its number.
            PeerFault: a member broke the protocol; TimeoutFault: members are missing. The session can go on
                with the next request, unless the aggregator itself is lost.
        """
        self.check_open()
        self._check_expected(expect or {})
        return await self._run("sum", vector, weight, clip, label, number)

    async def average(
        self,
        vector: ArrayLike | Mapping[str, Any],
        *,
        weight: float | None = None,
        clip: bool = False,
        label: str = "",
        number: int | None = None,
        expect: Mapping[str, object] | None = None,
        check_total: bool = True,
        bounds: Bounds | None = None,
    ) -> Result:
        """Return the (weighted) average of the survivors' vectors; arguments and errors as in `sum`.

        In a verifiable session this party computes the total itself before it attests it; without
        `check_total` it does neither, and `evidence.checked` of the result is False.

        Args:
            vector: as in `sum`; or a dict of dicts, lists, tuples, NumPy arrays, PyTorch tensors, pandas
                frames and floats, with as many values as the session's vectors. The result has such a tree in
                `tree`. Parties whose trees have other paths, shapes, types or bounds are not added up with
                this one; `label` has 64 characters at most.
            bounds: of a tree's leaves, one pair (lower, upper) for all, or one for each path, in the place of
                the session's, onto which they are mapped.
            weight, clip, label, number, expect: as in `sum`; `clip` is to the bounds of each leaf.
        """
        self.check_open()
        self._check_expected(expect or {})
        self._connection.check_total = check_total
        if not isinstance(vector, Mapping):
            if bounds is not None:
                reason = "is for trees: those of vectors stand in the session file"
                raise ConfigError.at("bounds", reason, ConfigCheck.UNSUPPORTED)
            return await self._run("average", vector, weight, clip, label, number)
        return await self._average_tree(vector, bounds, weight, clip, label, number)

    def _check_expected(self, expect: Mapping[str, object]) -> None:
        """Raise ConfigError that names every key whose value in the session file differs."""
        session = self._membership.session
        declared = {"protocol": session.protocol, "version": session.version, **session.parameters}
        issues = [
            ConfigIssue(
                key, f"is {value!r}, the session file says {declared.get(key)!r}", ConfigCheck.DIFFERS
            )
            for key, value in expect.items()
            if declared.get(key) != value
        ]
        if issues:
            raise ConfigError(issues)

    async def statistics(
        self,
        table: Source | Table | ReadyRows | None = None,
        ask: str | Sequence[str] | None = None,
        *,
        label: str = "",
        number: int | None = None,
        expect: Mapping[str, object] | None = None,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> RecordResult:
        """Return what the session file asks of the records of all parties, with differential privacy.

        One request carries all answers; a logistic or Poisson regression takes `steps` requests, also if one
        of them fails, and the answers of the last are returned. Whatever depends on this party's rows is
        never an error and never visible to others: what does not count is in `dropped` of the result.

        Args:
            table: path of a CSV or Parquet file, a pandas table, a mapping or a structured array of columns;
                or a `Table` that `records.table.read_table` has read before; None: that of `connect`. Others
                see how long this party takes to read and sum its rows, if they wait for it. Of more rows than
                `max_rows` each sum is clamped by itself, so that answers are wrong, with a `RowsWarning`
                (which is never raised): give `connect` the table, which refuses it.
            ask: what this party takes the session file to ask; a difference is refused, and nothing is sent.
            label, number, expect: as of `sum`; with several steps `number` is of the first, one of 1,
                1 + steps, 1 + 2 steps and so on, and so is `next` of OtherRequestError: a regression that has
                begun cannot be joined.
            level: of the intervals, each or, `simultaneous`, all of them together.

        Raises:
            ConfigError: the session asks nothing of records, or something else; the table lacks a column, or
                there is none; no level.
            OtherRequestError, PrivacyError, PeerFault, TimeoutFault: as of `sum`.
        """
        self.check_open()
        parameters = self._record_parameters(ask)
        self._check_expected(expect or {})
        _check_label(label)
        # Before the request: afterwards it would be charged, and its result lost.
        if not 0 < level < 1:
            raise ConfigError.at("level", f"must be in (0, 1), is {level}", ConfigCheck.RANGE)
        if self._ledger is not None and parameters.steps > 1:
            # All steps, before the first.
            await asyncio.to_thread(self._ledger.check, [self._membership.event()] * parameters.steps)
        source = self._rows if table is None else table
        if source is None:
            raise ConfigError.at("table", "is needed, here or by `connect`", ConfigCheck.MISSING)
        steps = parameters.steps
        if isinstance(number, Integral) and (number - 1) % steps:
            reason = f"{self.party}: must be that of a first step, of which each has {steps}: is {number}"
            raise ConfigError.at("number", reason, ConfigCheck.RANGE)
        self._take(number)
        last = self._request + steps - 1
        try:
            ready, result = await self._record_request(source, parameters, label, level, simultaneous)
            while self._request < last:
                parameters = parameters.following(result.answers)
                self._take(None)
                ready, result = await self._record_request(
                    ready.table, parameters, label, level, simultaneous
                )
        except OtherRequestError as error:
            # A regression that has begun cannot be joined: its steps need the answers of the earlier ones.
            later = error.postponed(1 - (1 - error.next) // steps * steps)
            self._behind = self._behind and later
            raise later from None
        finally:
            # Numbers of all steps are used up: others may still be at a later one of this call.
            self._request = last
        return result

    async def _record_request(
        self,
        table: Source | Table | ReadyRows,
        parameters: RecordParameters,
        label: str,
        level: float,
        simultaneous: bool,
    ) -> tuple[ReadyRows, RecordResult]:
        """Run one request for statistics of records."""
        try:
            ready = await asyncio.to_thread(ready_rows, table, parameters, self._membership)
            if self._membership.opened_tables is not None:
                await asyncio.to_thread(self._membership.opened_tables.check)
        except SmpcError as error:
            await self._connection.decline(self._request, error)
            raise
        from smpc_dp.net.planned import RowsWarning
        from smpc_dp.protocols.record_result import BEYOND_ROWS, KIND

        if ready.table.dropped.beyond_rows:
            self._on_event(Event(self.party, "warned", self._request, detail=BEYOND_ROWS))
            # Where it is made an error, others would see that by the absence of this party.
            with suppress(RowsWarning):
                reason = f"{self.party}: request {self._request}: {BEYOND_ROWS}"
                warnings.warn(reason, RowsWarning, stacklevel=3)
        outcome, receipt = await self._outcome(KIND, ready.ring_vector, label, parameters.planned())
        names = self._membership.names
        result = await asyncio.to_thread(
            lambda: parameters.result(
                outcome,
                names,
                level=level,
                simultaneous=simultaneous,
                receipt=receipt,
                dropped=ready.table.dropped,
            )
        )
        return ready, result

    def _record_parameters(self, ask: str | Sequence[str] | None) -> RecordParameters:
        """Return the parameters of a session that asks of records; raise ConfigError for what differs."""
        from smpc_dp.protocols.records import asked

        parameters = record_parameters(self._membership)
        if ask is not None and asked(ask) != asked(parameters.texts):
            reason = f"is {asked(ask)}, the session file says {asked(parameters.texts)}"
            raise ConfigError.at("ask", reason, ConfigCheck.DIFFERS)
        return parameters

    async def report(self, record: Any) -> SentReport:
        """Send this party's report on its record to the analyst of a session with protocol "reports".

        The report is drawn and charged at the first call, also of other processes, and the same bytes are
        sent at every later one: nothing is charged then, and the record is not looked at. The session needs
        a ledger.

        Args:
            record: the values of the session's fields; those out of their bounds are clipped. Where names of
                undeclared categories are reported, a table, as of `statistics`. None to send a stored report
                again.

        Raises:
            PrivacyError: a value is missing, or the ledger refuses; nothing was sent or charged. Or the
                report was lost after it was charged, and is never drawn anew.
            ConfigError: not such a session, no ledger, or no record or table. LocalError: a file cannot be
                used.
            TimeoutFault: the analyst has not confirmed; the report is stored, to be sent again.
        """
        self.check_open()
        from smpc_dp.net.reporting import send_report

        self._request += 1
        return await send_report(self._connection, self._ledger, record)

    def plan(self) -> SessionPlan | None:
        """Return what a request will be charged, and the standard error of each answer before it is asked.

        None for a session with servers, but for statistics of records.
        """
        from smpc_dp.net.planned import session_plan

        return session_plan(self._membership.session)

    def log(self) -> ServedLog:
        """Return the log of the last request, which must have been a verifiable one that succeeded.

        `await log.lines(first, last)` fetches a part of it from the aggregator, `await log.audit()` audits
        all of it; each line is checked against the heads that this party has signed. Call it before the next
        request.
        """
        from smpc_dp.net.served_log import served_log

        self.check_open()
        return served_log(self._connection, self._request)

    async def learn(
        self,
        data: Any = None,
        *,
        model: Any = None,
        gradient: LocalFunction | None = None,
        update: LocalFunction | None = None,
        metric: Metric | None = None,
        weight: float | None = None,
        on_step: OnStep | None = None,
    ) -> Learned:
        """Run the learner of a session with protocol "learn"; all parties call this, once.

        Args:
            data: this party's points: a table, shape (points, columns), the label last; a path of one; or,
                where the session file has `columns`, a CSV or Parquet file with a header, a pandas table, a
                mapping or a structured array, of which those columns are taken. With `model = "own"` in the
                session file anything: it is given to the functions below.
            model: what all parties begin with, a dict as of `average` or an array, `length` values; it must
                not depend on private data. Parties that begin with another are not added up with this one.
            gradient: `gradient(model, data)` returns the gradient of this party's loss at a model, in the
                form of `model`; it is clipped to `clip`. Called in a thread, once a step.
            update: in its place `update(model, data)` returns the model after local training; what is
                averaged is the difference, clipped: with `rate = 1` all go on from the average.
            metric: `metric(model, data)` returns a number, where the session file has `metric_every`; it is
                clipped, averaged and charged as gradients are.
            weight: of this party, 1 to `max_points`, as secret as its data, with `weights = "points"`.
            on_step: called with a `Step` after each step that this party is in.

        Raises:
            ConfigError: an argument does not fit the session file; nothing was sent or charged. Or the model
                diverges. PrivacyError: the ledger cannot afford what is planned, and nothing was sent; or a
                function gave a value that is not finite.
            AggregatorLostError, ServerLostError, PeerFault, TimeoutFault: nobody can go on. A step that
                fails is left out, and counted in the result.
        """
        self.check_open()
        from smpc_dp.learn.own import OwnFunctions
        from smpc_dp.learn.requirements import ignore_step
        from smpc_dp.net.learning import check_ledger, run_learner
        from smpc_dp.net.member import learn_parameters

        parameters = learn_parameters(self._membership)
        if self._request:
            reason = f"{self.party}: a session learns once; open another one to learn again"
            raise ConfigError.at("session", reason, ConfigCheck.CONFLICT)
        functions = OwnFunctions(model, gradient, update, metric)
        own = parameters.own_model(functions, [self.party], [data], [weight])
        table = data if own is not None else await asyncio.to_thread(parameters.read, data, self.party)
        await check_ledger(self._ledger, self._membership)
        self._request += 1
        return await run_learner(
            self._connection, [table], self._ledger, self._on_event, own, on_step or ignore_step
        )

    async def evaluate(
        self,
        circuit: AnyCircuit,
        inputs: Sequence[Input],
        *,
        peer: str,
        role: Role,
        output: Output = "both",
        evaluator_inputs: Sequence[int] | None = None,
        instances: int | None = None,
        mode: Mode = "tile",
        covert: int = 0,
        label: str = "",
    ) -> Evaluation:
        """Evaluate a Boolean circuit with one other party, by garbled circuits; both parties call this.

        The two connect to each other: one of them needs an address in the session file. Evaluations may run
        beside requests to the aggregator; those with one peer run one after the other, in the order of the
        calls.

        Args:
            circuit: name of a published circuit, path of a file in Bristol Fashion, or a `Circuit`.
            inputs: for each of this party's input values of the circuit, in order, an unsigned integer; or,
                for a batch, a sequence or integer array of them, all of one length. A negative number is
                given in two's complement: `x % 2**32`.
            peer: the other party's name.
            role: "garbler" or "evaluator": this party's; the peer has the other one. The claim is not the
                same for both: without `covert` the garbler must be semi-honest, the evaluator need not be.
            output: recipient of the output: "garbler", "evaluator" or "both".
            evaluator_inputs: indices (from 0) of the evaluator's input values; by default all but the first.
            instances: how many evaluations; needed for a batch in which this party has no inputs.
            mode: "tile" or "unique" garbling keys.
            covert: 0, or the number of copies, 2 to 64, the same at the peer, of which the evaluator checks
                all but one: a garbler that cheats is caught with probability 1 - 1/covert, before anything
                that depends on the evaluator's inputs is sent, and a certificate convicts it. The
                evaluator writes it to `certificates/` beside its key, and refuses parties convicted there.
            label: a name of this evaluation, in at most 200 characters, the same at the peer.

        Raises:
            ConfigError: an argument is wrong, or the peer's differ; names which, before anything is garbled.
            PeerFault: the peer broke the protocol, or is convicted of cheating (`check` is then
                `Check.CONVICTED`). TimeoutFault: it did not call within `gather` seconds, or
                took longer than `step` for one message. The session can go on after each.
        """
        from smpc_dp.protocols.garbled.evaluation import Operation

        self.check_open()
        _check_label(label)
        evaluations = await self._evaluating("evaluations: its addresses are for its averages")
        evaluations.check_peer(peer)
        if role not in ("garbler", "evaluator"):
            raise ConfigError.at("role", f"{role!r} is neither 'garbler' nor 'evaluator'", ConfigCheck.CHOICE)
        garbler, evaluator = (self.party, peer) if role == "garbler" else (peer, self.party)
        operation = await asyncio.to_thread(
            Operation.make,
            circuit,
            inputs,
            garbler=garbler,
            evaluator=evaluator,
            own=self.party,
            output=output,
            mode=mode,
            covert=covert,
            evaluator_inputs=evaluator_inputs,
            instances=instances,
        )

        def on_step(step: str) -> None:
            self._on_event(Event(self.party, "step", step=step, waiting=1, detail=f"evaluation with {peer}"))

        return await evaluations.evaluate(operation, peer, label, on_step)

    async def similarities(
        self, vector: ArrayLike, epsilon: float, *, levels: int = 7, covert: int = 0
    ) -> Similarities:
        """Compare this party's vector with that of each other party by a noisy cosine; all call this.

        Garbled circuits compute cosine and noise, and both of a pair learn the sum alone: never an exact
        cosine, nor a bit of it. As for `evaluate`, one of each two parties needs an address. Experimental:
        docs/proofs/personalized.md.

        Args:
            vector: this party's, of one length at all parties; it is scaled to norm 1.
            epsilon: for this party's WHOLE vector, all n - 1 comparisons together; equal at all parties.
            levels: of the grid: entries of the scaled vector are cut to multiples of 1/levels. Above the
                root of the length; at four times it equal vectors have scores of about 0.8.
            covert: as of `evaluate`.

        Raises:
            ConfigError: an argument is wrong, or differs from the other parties' in each comparison that did
                not fail otherwise. PrivacyError: the ledger refuses. Nothing of the vector was sent then. A
                comparison that fails, or with one party whose arguments differ, is spent, and left out.
        """
        self.check_open()
        from smpc_dp.net.similarity import compare

        evaluations = await self._evaluating("evaluations: its addresses are for its averages")
        names = [member.name for member in self._membership.session.roster.parties]
        check = evaluations.check_peer
        return await compare(
            self.party, names, self.evaluate, check, self._ledger, vector, epsilon, levels, covert=covert
        )

    async def pairwise(
        self,
        kernel: str | Kernel,
        data: Any,
        epsilon: float,
        P: int | None = None,  # noqa: N803 - the paper's symbol
        *,
        delta: float = 0.0,
        noise: NoiseKind | PairDistribution = "laplace",
        zetas: tuple[float, float] | None = None,
        public_label: int | None = None,
        engine: Engine | None = None,
        covert: int | None = None,
        number: int | None = None,
    ) -> StatisticResult:
        """Estimate the mean of a kernel over pairs of parties, with differential privacy; all call this.

        P random matchings are drawn from coins of all parties; each pair evaluates kernel and noise by
        garbled circuits, and the aggregator alone learns the noisy value [Bellet 2021, 3.3.4]. A pair
        connects directly where one of the two has an address in the session file, else through the
        aggregator, sealed. Experimental: docs/proofs/statistics.md.

        Args:
            kernel: a name of `kernels.named`, on integers of 32 bits, or a kernel on grids of your own.
            data: this party's record, a number or a tuple of one for each field.
            epsilon, delta: for the record, all P evaluations together; delta above 0 for "gaussian".
            P: evaluations of each party; None, noise, zetas: see `statistics.compiled.plan_statistic`.
            public_label: 0 or 1, where the kernel has public labels.
            engine: "garbled", as above; "mpyc" in a session with servers: they compute it on shares over all
                pairs, or P of each party, and add one noise, "laplace" or "gaussian", to the whole; or
                "pair_laplace", "pair_gaussian" or "randomised_response" to each pair
                (docs/proofs/servers.md). By default the session's.
            covert: the number of copies of each evaluation, 2 to 64, as of `evaluate`, 4 by default, the same
                for all: a garbler that cheats is caught with probability 1 - 1/covert for each pair, and
                convicted; the pair fails. 0 assumes that garblers are semi-honest, and is cheaper. With
                servers there is none.
            number: of the request that the record is for, as of `sum`. A party that is behind gets a
                TimeoutFault with the number that the aggregator or a server says the others are at, and its
                next call must say its own.

        Raises:
            ConfigError: an argument is wrong. PrivacyError: the record is outside the kernel's domain, or the
                ledger refuses; then nothing of the record is sent.
            PeerFault, TimeoutFault: as for `sum`. A pair that fails is spent, left out and counted.
        """
        self.check_open()
        self._membership.refuse_others("vector", "records")
        session = self._membership.session
        expected: Engine = "mpyc" if session.topology == "servers" else "garbled"
        if engine not in (None, expected):
            raise ConfigError.at(
                "engine",
                f"is {engine!r}, this session's members compute by {expected!r}",
                ConfigCheck.DIFFERS,
            )
        from smpc_dp.kernels.named import find_kernel

        if expected == "mpyc":
            if covert:
                raise ConfigError.at("covert", "servers garble nothing", ConfigCheck.UNSUPPORTED)
            from smpc_dp.net.servers.programs import operation_of

            self._take(number)
            async with self._declining():
                outcome = find_kernel(kernel)
                operation = operation_of(outcome, epsilon, delta, noise, P)
            with self._noting_others():
                result = await cast("ServersConnection", self._connection).statistic(
                    self._request, outcome, data, public_label, operation, zetas, self._ledger
                )
            self._notify_done(result.survivors, result.absent)
            return result
        lacking = "pairwise statistics: it learns them"
        self._contexts(lacking)
        from smpc_dp.net.statistic import StatisticRequest, estimate
        from smpc_dp.protocols.garbled.params import PAIR_COPIES

        self._take(number)
        async with self._declining():
            evaluations = await self._evaluating(lacking)
            requested = await asyncio.to_thread(
                lambda: StatisticRequest.check(
                    find_kernel(kernel),
                    data,
                    parties=len(session.roster.parties),
                    epsilon=epsilon,
                    delta=delta,
                    partners=P,
                    noise=cast("NoiseKind", noise),
                    zetas=zetas,
                    public_label=public_label,
                    covert=PAIR_COPIES if covert is None else covert,
                )
            )
        aggregator = cast("AggregatorConnection", self._connection)
        with self._noting_others():
            result = await estimate(requested, aggregator, self._request, evaluations, self._ledger)
        self._notify_done(result.survivors, result.absent)
        return result

    def _take(self, number: int | None) -> None:
        """Take the number of a call; by default the next one.

        Raises ConfigError for a number that was taken; and without one where most others were at another
        request: a vector that was not made for that one must not be part of it.
        """
        if number is None:
            if self._behind is not None:
                reason = f"{self.party}: say which request this is for: {self._following(self._behind)}"
                raise ConfigError.at("number", reason, ConfigCheck.MISSING)
            number = self._request + 1
        whole = isinstance(number, Integral) and not isinstance(number, bool)
        if not whole or not self._request < number <= MOST_REQUESTS:
            reason = f"{self.party}: must be a whole number above {self._request}, the last call's"
            raise ConfigError.at("number", f"{reason}, is {number!r}", ConfigCheck.RANGE)
        self._request, self._behind = int(number), None

    def _following(self, error: OtherRequestError | TimeoutFault) -> str:
        """Return in words what the others ask for, and on whose word alone if nobody has shown it."""
        if isinstance(error, OtherRequestError):
            return f"the others ask for {error.next}"
        aggregator = self._membership.session.roster.aggregator
        member = "a member" if aggregator is None else aggregator.name
        return f"{member} says that the others ask for {error.number}"

    async def _run(
        self,
        kind: Kind,
        vector: ArrayLike,
        weight: float | None,
        clip: bool,
        label: str,
        number: int | None,
    ) -> Result:
        """Encode a vector and run one request."""
        _check_label(label)
        self._check_sums(kind)
        self._take(number)
        try:
            encoding = self._membership.encoding
            ring_vector, clipped = encoding.encode(vector, party=self.party, weight=weight, clip=clip)
        except SmpcError as error:
            # The others must neither wait for this vector nor take the next one for it.
            await self._connection.decline(self._request, error)
            raise
        return await self._run_encoded(kind, ring_vector, clipped, label)

    def _check_sums(self, kind: Kind = "average") -> None:
        """Raise ConfigError in a session without sums; with private weights for all but averages."""
        self._membership.refuse_others("vector")
        if kind not in self._membership.parameters.operations:
            reason = "with epsilon and max_weight a session has averages alone: call average"
            raise ConfigError.at("max_weight", reason, ConfigCheck.UNSUPPORTED)

    async def _average_tree(
        self,
        given: Mapping[str, Any],
        bounds: Bounds | None,
        weight: float | None,
        clip: bool,
        label: str,
        number: int | None,
    ) -> Result:
        # Not at the top: most requests are for vectors.
        from smpc_dp.trees import flatten

        self._check_sums()
        _check_label(label, TREE_LABEL_LIMIT)
        self._take(number)
        encoding = self._membership.encoding
        try:
            tree = flatten(given, encoding, party=self.party, bounds=bounds, clip=clip)
            ring_vector, clipped = encoding.encode(tree.vector, party=self.party, weight=weight, clip=clip)
        except SmpcError as error:
            await self._connection.decline(self._request, error)
            raise
        clipped += tree.clipped
        result = await self._run_encoded("average", ring_vector, clipped, label, tree.structure)
        return replace(
            result, tree=tree.restore(result.value, exact=result.noise is None), leaves=tree.leaves
        )

    def compare(self, tree: Mapping[str, Any], structure: str, bounds: Bounds | None = None) -> str:
        """Return the path in which a tree differs from the structure that others ask for, in words.

        `structure`: the part of their operation from "tree:" on, as the aggregator's event of the request
        shows it. Nothing is sent.
        """
        from smpc_dp.trees import differing, flatten

        flattened = flatten(tree, self._membership.encoding, party=self.party, bounds=bounds, clip=True)
        return differing(flattened, structure)

    async def sum_encoded(
        self,
        kind: Kind,
        ring_vector: RingVector,
        clipped: int = 0,
        label: str = "",
        number: int | None = None,
    ) -> Result:
        """Return the "sum" or "average" of vectors encoded by the session's encoding; one request.

        For callers who check an input before they connect. `ring_vector` is copied.
        """
        self.check_open()
        self._check_sums(kind)
        self._take(number)
        return await self._run_encoded(kind, ring_vector.copy(), clipped, label)

    async def _run_encoded(
        self, kind: Kind, ring_vector: RingVector, clipped: int, label: str, structure: str = ""
    ) -> Result:
        """Run one request with an encoded vector; `structure`: of the tree that it is made of."""
        from smpc_dp.protocols.result import Result

        planned = " ".join(part for part in (structure, self._membership.parameters.planned()) if part)
        outcome, receipt = await self._outcome(kind, ring_vector, label, planned)
        distributions = self._membership.parameters.noise_distributions
        return Result.of(outcome, kind, clipped, receipt, distributions)

    async def _outcome(
        self, kind: str, ring_vector: RingVector, label: str, planned: str
    ) -> tuple[Outcome, Receipt | None]:
        """Take part in one request for a sum; return how it ended, and what the ledger gives for it.

        `planned`: what parties must have in common beside the label.
        """
        from smpc_dp.protocols.registry import origin_of

        # Parties with different versions of another package's protocol are not added up.
        origin = origin_of(self._membership.session.protocol)
        operation = " ".join(part for part in (kind, label, planned, origin) if part)

        await self._check_budget()
        book = partial(charge_run, self._ledger, self._membership.event, self._request)

        opened = self._membership.opened_tables

        async def charge(run_id: bytes, raised: ReleaseEvent | None = None) -> Receipt | None:
            entry = await book(run_id, raised)
            if opened is not None:
                await asyncio.to_thread(opened.add, run_id)
            # Also of a request that fails later: it may have released what it was charged for.
            self._charged += raised is None
            return entry

        with self._noting_others():
            outcome, receipt = await self._connection.run(
                self._request, operation, ring_vector, charge, label=label
            )
        self._notify_done(outcome.survivors, outcome.absent)
        if BUDGET in self._membership.session.parameters:
            spent = await asyncio.to_thread(self._spent_budget)
            outcome = replace(outcome, privacy=replace(outcome.privacy, budget=spent))
        return outcome, receipt

    @contextmanager
    def _noting_others(self) -> Iterator[None]:
        """Note in a request that ends so that the others are at another one: `_take` asks for a number."""
        try:
            yield
        except OtherRequestError as error:
            # With another label the next call is of the next request all the same, and its label is compared.
            relabelled = error.asked == error.number and error.label != error.asked_label
            self._behind = None if relabelled else error
            raise
        except TimeoutFault as error:
            # Without evidence, so it says nothing but that the next input is not for the next request.
            later = error.code == Code.PAST and self._request < error.number <= MOST_REQUESTS
            self._behind = error if later else None
            raise

    @asynccontextmanager
    async def _declining(self) -> AsyncIterator[None]:
        """Leave the request of a statistic whose record or arguments this party refuses.

        The others must neither wait for this record nor take the next one for it.
        """
        try:
            yield
        except SmpcError as error:
            # Not at the top: a party of a sum loads no statistics.
            from smpc_dp.net.tasks import beside_task

            await self._connection.decline(self._request, error, beside=beside_task("pairs"))
            raise

    def _budget(self) -> Budget | None:
        """Return what all requests of the session may cost together, where its file says it."""
        if BUDGET not in self._membership.session.parameters:
            return None
        from smpc_dp.privacy.budget import read_budget

        return read_budget(self._membership.session.parameters)[0]

    async def _check_budget(self) -> None:
        """Leave a request beyond those that the session's budget is for; raises PrivacyError."""
        budget = self._budget()
        if budget is None or self._charged < budget.requests:
            return
        error = PrivacyError(
            f"epsilon is short: {self.party}: request {self._request} is refused: the session's budget, "
            f"epsilon = {budget.epsilon:g} at delta = {budget.delta:g}, is for {budget.requests} requests"
        )
        await self._connection.decline(self._request, error)
        raise error

    def _spent_budget(self) -> SpentBudget | None:
        from smpc_dp.privacy.budget import spent_budget

        budget = self._budget()
        return None if budget is None else spent_budget(budget, self._membership.event(), self._charged)

    def _contexts(self, lacking: str) -> Contexts:
        """Return the TLS contexts for evaluations with other parties.

        Raises ConfigError without an aggregator: `lacking` is what such a session does not have.
        """
        if (contexts := self._connection.contexts) is None:
            reason = f"a session without an aggregator has no {lacking}"
            raise ConfigError.at("topology", reason, ConfigCheck.UNSUPPORTED)
        return contexts

    async def _evaluating(self, lacking: str) -> Evaluations:
        """Return the evaluations with other parties, made at the first call; errors of `_contexts`."""
        if self._evaluations is None:
            contexts = self._contexts(lacking)
            from smpc_dp.net.convictions import FOLDER, Convictions
            from smpc_dp.net.evaluation import Evaluations

            member = self._membership
            folder = member.key_file.with_name(FOLDER)
            convictions = await asyncio.to_thread(Convictions, folder, member.session.roster)
            if self._evaluations is None:
                self._evaluations = Evaluations(member.session, member.identity, contexts, convictions)
        return self._evaluations

    def _notify_done(self, survivors: tuple[str, ...], absent: tuple[str, ...]) -> None:
        """Report the end of the last request."""
        reported = Event(self.party, "done", self._request, "done", survivors=survivors, absent=absent)
        self._on_event(reported)


def _check_label(label: str, limit: int = LABEL_LIMIT) -> None:
    """Raise ConfigError for a label that is too long, or that texts show like another one."""
    if label != label.strip():
        reason = f"must not begin or end with a blank, is {label!r}"
        raise ConfigError.at("label", reason, ConfigCheck.FORMAT)
    if len(label) > limit:
        raise ConfigError.at("label", f"at most {limit} characters, has {len(label)}", ConfigCheck.TOO_LARGE)


@asynccontextmanager
async def connect(
    session: str | os.PathLike[str],
    party: str,
    *,
    key: str | os.PathLike[str] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    listen_on: str | None = None,
    on_event: OnEvent = ignore,
    role: MakeParty | None = None,
    table: Source | Table | None = None,
) -> AsyncIterator[Session]:
    """Connect `party` to the aggregator of a session file, over mutual TLS 1.3 pinned to its roster.

    In a session without one (gopa, `topology = "direct"`) it is connected to all other parties: it waits for
    them until `connect` seconds have passed, and goes on if enough are connected.

    Args:
        session: path of the session file.
        party: a name of the roster with role "party".
        key: path of its identity file; by default `keys/PARTY.key` beside the session file.
        ledger: path of the party's privacy ledger (`smpc-dp ledger create`). Each request is charged to it,
            durably, before anything that depends on the vector is sent; a refused one raises PrivacyError,
            and nothing of the vector is sent.
        listen_on: in the direct topology host:port to bind, where that is not the address in the roster.
        on_event: called with every event, to show progress.
        role: makes this party's role in each request for a sum, in place of the protocol's own: a party that
            deviates, for tests and demonstrations. For sessions with an aggregator.
        table: the rows of this party for `Session.statistics`, which take no time of others: they are read
            and summed before it connects.

    Raises:
        ConfigError: every fault of the session file, or its differences from the aggregator's; another
            party's ledger; more rows in `table` than `max_rows`: nobody learns more than that the party is
            absent.
        LocalError: the key file or the ledger is missing or damaged, or others can read it.
        TimeoutFault, PeerFault: the aggregator, or enough of the others, cannot be reached, or has another
            key than in the roster.
    """
    opened = await Session.open(
        session,
        party,
        key=key,
        ledger=ledger,
        listen_on=listen_on,
        on_event=on_event,
        role=role,
        table=table,
    )
    try:
        yield opened
    finally:
        if not opened.closed:
            await opened.close()


def read_rows(source: Source | Table, parameters: RecordParameters, membership: Membership) -> Table:
    """Return a party's table on the grids of the session's columns.

    Raises:
        ConfigError: a column is missing, or of another length; with public rows their number is another one.
        LocalError: the file cannot be read.
    """
    from smpc_dp.records.table import Table, read_table

    party = membership.name
    if isinstance(source, Table):
        if source.schema != parameters.schema:
            raise ConfigError.at("table", f"{party}: was read for another schema", ConfigCheck.DIFFERS)
        table = source
    else:
        table = read_table(source, parameters.schema, party=party)
    rows = parameters.rows_of([membership.names.index(party)])
    if rows is not None and table.rows != rows:
        reason = f"{party}: the table has {table.rows} rows, public_rows says {rows}"
        raise ConfigError.at("public_rows", reason, ConfigCheck.DIFFERS)
    return table


@dataclass(frozen=True)
class ReadyRows:
    """A party's table with its encoded vector, made before others wait for it."""

    table: Table
    ring_vector: RingVector
    planned: str


def ready_rows(
    source: Source | Table | ReadyRows, parameters: RecordParameters, membership: Membership
) -> ReadyRows:
    """Return a party's table and encoded vector; raises the errors of `read_rows`."""
    if isinstance(source, ReadyRows):
        read_rows(source.table, parameters, membership)
        if source.planned != parameters.planned():
            reason = f"{membership.name}: was made ready for another session"
            raise ConfigError.at("table", reason, ConfigCheck.DIFFERS)
        return source
    table = read_rows(source, parameters, membership)
    vector = parameters.request.vector(table)
    ring_vector, _ = parameters.encoding.encode(vector, party=membership.name)
    return ReadyRows(table, ring_vector, parameters.planned())


def prepared_rows(source: Source | Table, membership: Membership) -> ReadyRows:
    """Return what `ready_rows` does, before the party connects.

    Raises ConfigError for a session that asks nothing of records and for more rows than `max_rows`, besides
    the errors of `read_rows`.
    """
    ready = ready_rows(source, record_parameters(membership), membership)
    ready.table.check_rows(membership.name)
    return ready


def record_parameters(membership: Membership) -> RecordParameters:
    """Return the parameters of a session that asks of records; raise ConfigError for another."""
    # Not at the top: it loads the session file's checks.
    from smpc_dp.net.tasks import checked_for

    return cast("RecordParameters", checked_for(membership.session, "records"))
