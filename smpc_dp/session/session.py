"""A party's session: connect once, then compute sums and averages together with the others."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.session.events import OnEvent, ignore, with_logging
from smpc_dp.session.party_requests import EncodedVector, PartyRequests
from smpc_dp.session.threads import finish_in_thread

if TYPE_CHECKING:
    # `connect` loads the modules that the session needs; those that only some requests need are loaded by
    # them.
    from numpy.typing import ArrayLike

    from smpc_dp.encoding import RingVector
    from smpc_dp.engine.result import Result
    from smpc_dp.engine.session_protocol import MakeParty
    from smpc_dp.logs.audits.served_log import ServedLog
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.circuit_noise import NoiseKind, PairDistribution
    from smpc_dp.records.record_result import RecordResult
    from smpc_dp.records.requests.record_requests import ReadyRows
    from smpc_dp.records.table import Source, Table
    from smpc_dp.secagg.requests.vector_requests import Kind
    from smpc_dp.session.call_types import (
        AnyCircuit,
        Engine,
        Evaluation,
        Input,
        Kernel,
        Learned,
        LocalFunction,
        Metric,
        Mode,
        OnStep,
        Output,
        Role,
        Security,
        SentReport,
        Similarities,
        StatisticResult,
    )
    from smpc_dp.session.connection import Connection
    from smpc_dp.session.member import Membership
    from smpc_dp.session.planned import SessionPlan
    from smpc_dp.session.session_state import StateFolder
    from smpc_dp.trees import Bounds
    from smpc_dp.web_settings import WebSettings


class Session:
    """A party's open connection to a session, through which it asks for sums, statistics and more."""

    def __init__(
        self,
        membership: Membership,
        connection: Connection,
        on_event: OnEvent,
        ledger: Ledger | None = None,
        rows: ReadyRows | None = None,
    ) -> None:
        self._state = connection.state
        self._requests = PartyRequests(membership, connection, on_event, ledger)
        self._rows = rows
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
        web: WebSettings | None = None,
        state: StateFolder | None = None,
        counter: str | os.PathLike[str] | None = None,
    ) -> Session:
        """Connect a party; return the open session, which no `with` closes: the caller must await `close`.

        For sessions that no block of code spans, such as one of several cells of a notebook. Arguments and
        errors as of `connect`.
        """
        # Not at the top: a program that may connect does not yet pay for what a party needs.
        from smpc_dp.session.opening import open_saved, prepare

        on_event = with_logging(on_event)
        saved = state is not None
        membership, book, rows = await prepare(session, party, key, ledger, table, web, saved=saved)
        connection = await open_saved(membership, on_event, listen_on, role, state, counter)
        return cls(membership, connection, on_event, book, rows)

    async def close(self) -> None:
        """Send what is queued, and leave the session; raise ConfigError if it is closed already."""
        self.check_open()
        self._closed = True
        try:
            if self._requests.evaluations is not None:
                await finish_in_thread(self._requests.evaluations.close)
        finally:
            await self._requests.connection.close()

    @property
    def closed(self) -> bool:
        """Whether the session was closed by `close`."""
        return self._closed

    def check_process(self) -> None:
        """Raise ConfigError if called in another process than the one that opened the session."""
        if os.getpid() != self._process:
            reason = (
                f"{self.party}: is of process {self._process}, which was forked: open one in this process"
            )
            raise ConfigError.at("session", reason, ConfigCheck.CONFLICT)

    def check_open(self) -> None:
        """Raise ConfigError if the session is closed, or was opened in another process."""
        self.check_process()
        if self._closed:
            reason = f"{self.party}: is closed; open it again with Session.open or connect"
            raise ConfigError.at("session", reason, ConfigCheck.CONFLICT)

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"Session({self.party!r}, {self._requests.number} requests{closed})"

    @property
    def party(self) -> str:
        """The name of this party."""
        return self._requests.party

    @property
    def length(self) -> int:
        """The number of coordinates of the session's vectors."""
        return self._requests.membership.encoding.length

    @property
    def max_weight(self) -> int:
        """The largest weight of a party; 0 in a session without weights."""
        return self._requests.membership.encoding.max_weight

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
        """Take part in a request for the exact sum of the survivors' vectors; return the result.

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
        from smpc_dp.secagg.requests.vector_requests import request_vector

        self.check_open()
        self._requests.check_expected(expect or {})
        return await request_vector(self._requests, "sum", vector, weight, clip, label, number)

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
        """Take part in a request for the (weighted) average of the survivors' vectors; return the result.

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
        from smpc_dp.secagg.requests.vector_requests import request_average

        self.check_open()
        self._requests.check_expected(expect or {})
        self._requests.connection.check_total = check_total
        return await request_average(self._requests, vector, bounds, weight, clip, label, number)

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
        hide: float | None = None,
    ) -> RecordResult:
        """Take part in a request for private statistics of all parties' records; return the answers.

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
            hide: counts below so many standard deviations of their noise are not shown, 3 by default; 0 shows
                all.

        Raises:
            ConfigError: the session asks nothing of records, or something else; the table lacks a column, or
                there is none; no level.
            OtherRequestError, PrivacyError, PeerFault, TimeoutFault: as of `sum`.
        """
        # Not at the top: most sessions ask nothing of records.
        from smpc_dp.records.requests.record_requests import request_statistics

        self.check_open()
        return await request_statistics(
            self._requests,
            self._rows if table is None else table,
            ask,
            expect=expect or {},
            label=label,
            number=number,
            level=level,
            simultaneous=simultaneous,
            hide=hide,
        )

    async def report(self, record: Any) -> SentReport:
        """Send a randomised report on this party's record to the session's analyst; return what was sent.

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
        report: SentReport = await self._asked("report", record)
        return report

    def plan(self) -> SessionPlan | None:
        """Return the predicted charge and standard errors of a request; None where no cost is known.

        None for a session with servers, but for statistics of records.
        """
        from smpc_dp.session.planned import session_plan

        return session_plan(self._requests.membership.session)

    def log(self) -> ServedLog:
        """Return the public log of this party's last request, which must have been verifiable.

        `await log.lines(first, last)` fetches a part of it from the aggregator, `await log.audit()` audits
        all of it; each line is checked against the heads that this party has signed. Call it before the next
        request.
        """
        from smpc_dp.logs.audits.served_log import served_log

        self.check_open()
        return served_log(self._requests.connection, self._requests.number)

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
        """Train a model together with all other parties, as the session file says; return the result.

        With a state the same call of a process that is started again goes on in the step that was under way.

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
        learned: Learned = await self._asked(
            "learner",
            data,
            model=model,
            gradient=gradient,
            update=update,
            metric=metric,
            weight=weight,
            on_step=on_step,
        )
        return learned

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
        mode: Mode | None = None,
        covert: int | None = None,
        security: Security | None = None,
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
                same for both, but for `security` "malicious": else the garbler must be semi-honest or fear a
                conviction, the evaluator need not be.
            output: recipient of the output: "garbler", "evaluator" or "both".
            evaluator_inputs: indices (from 0) of the evaluator's input values; by default all but the first.
            instances: how many evaluations; needed for a batch in which this party has no inputs.
            mode: "tile" or "unique" garbling keys; by default "tile", and of security "malicious", which has
                no tiles, "unique".
            covert: 0, or the number of copies, 2 to 64, the same at the peer, of which the evaluator checks
                all but one: a garbler that cheats is caught with probability 1 - 1/covert, before anything
                that depends on the evaluator's inputs is sent, and a certificate convicts it. The
                evaluator writes it to `certificates/` beside its key, and refuses parties convicted there.
            security: "semi-honest" (default), "covert" (with 4 copies unless `covert` says how many) or
                "malicious", the same at the peer: then a cheat of either side passes with probability 2^-40
                at most; else both stop with one error that names nobody (protocols/active/README.md).
            label: a name of this evaluation, in at most 200 characters, the same at the peer.

        Raises:
            ConfigError: an argument is wrong, or the peer's differ; names which, before anything is garbled.
            PeerFault: the peer broke the protocol, or is convicted of cheating (`check` is then
                `Check.CONVICTED`). VerificationError: an evaluation of security "malicious" failed.
                TimeoutFault: the peer did not call within `gather` seconds, or took longer than `step` for
                one message. The session can go on after each.
        """
        self.check_open()
        evaluation: Evaluation = await self._asked(
            "circuit",
            circuit,
            inputs,
            peer=peer,
            role=role,
            output=output,
            evaluator_inputs=evaluator_inputs,
            instances=instances,
            mode=mode,
            covert=covert,
            security=security,
            label=label,
        )
        return evaluation

    async def similarities(
        self,
        vector: ArrayLike,
        epsilon: float,
        *,
        levels: int = 7,
        covert: int | None = None,
        security: Security | None = None,
    ) -> Similarities:
        """Return noisy cosines of this party's vector with every other's; all parties call this.

        Garbled circuits compute cosine and noise, and both of a pair learn the sum alone: never an exact
        cosine, nor a bit of it. As for `evaluate`, one of each two parties needs an address. Experimental:
        docs/proofs/personalized.md.

        Args:
            vector: this party's, of one length at all parties; it is scaled to norm 1.
            epsilon: for this party's WHOLE vector, all n - 1 comparisons together; equal at all parties.
            levels: of the grid: entries of the scaled vector are cut to multiples of 1/levels. Above the
                root of the length; at four times it equal vectors have scores of about 0.8.
            covert, security: as of `evaluate`. With "malicious" each of the n - 1 comparisons, failed or not,
                costs a delta of 2^-40 beside epsilon.

        Raises:
            ConfigError: an argument is wrong, or differs from the other parties' in each comparison that did
                not fail otherwise. PrivacyError: the ledger refuses. Nothing of the vector was sent then. A
                comparison that fails, or with one party whose arguments differ, is spent, and left out.
        """
        self.check_open()
        scores: Similarities = await self._asked(
            "similarities", vector, epsilon, levels=levels, covert=covert, security=security
        )
        return scores

    async def pairwise(  # noqa: PLR0913 - most can be left out
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
        security: Security | None = None,
        label: str = "",
        number: int | None = None,
    ) -> StatisticResult:
        """Estimate the mean of a kernel over pairs of parties' records, with privacy; all parties call this.

        P random matchings are drawn from coins of all parties; each pair evaluates kernel and noise by
        garbled circuits, and the aggregator alone learns the noisy value [Bellet 2021, 3.3.4]. A pair
        connects directly where one of the two has an address in the session file, else through the
        aggregator, sealed. Experimental: docs/proofs/statistics.md.

        Args:
            kernel: a name of `capabilities.pairs.kernels.named`, on integers of 32 bits, or a kernel on grids
                of your own.
            data: this party's record, a number or a tuple of one for each field.
            epsilon, delta: for the record, all P evaluations together; delta above 0 for "gaussian".
            P: evaluations of each party; None, noise, zetas: see
                `capabilities.pairs.statistics.compiled.plan_statistic`.
            public_label: 0 or 1, where the kernel has public labels.
            engine: "garbled", as above; "mpyc" in a session with servers: they compute it on shares over all
                pairs, or P of each party, and add one noise, "laplace" or "gaussian", to the whole; or
                "pair_laplace", "pair_gaussian" or "randomised_response" to each pair
                (docs/proofs/servers.md). By default the session's.
            covert: the number of copies of each evaluation, 2 to 64, as of `evaluate`, 4 by default, the same
                for all: a garbler that cheats is caught with probability 1 - 1/covert for each pair, and
                convicted; the pair fails. 0 assumes that garblers are semi-honest, and is cheaper. With
                servers there is none.
            security: "covert" (default), "semi-honest" (as `covert=0`) or "malicious", as of `evaluate`, the
                same for all. With "malicious" each of the P evaluations of a party, failed or not, costs a
                delta of 2^-40 beside `delta`, and a pair in which somebody cheats fails and names nobody.
            label: a name of this call, in at most 200 characters, by which a party with a state knows it
                again. Unlike that of a sum it is not compared with the others'.
            number: of the request that the record is for, as of `sum`. A party that is behind gets a
                TimeoutFault with the number that the aggregator or a server says the others are at, and its
                next call must say its own.

        Raises:
            ConfigError: an argument is wrong. PrivacyError: the record is outside the kernel's domain, or the
                ledger refuses; then nothing of the record is sent.
            PeerFault, TimeoutFault: as for `sum`. A pair that fails is spent, left out and counted. So are
                those of a party with a state whose process ends while it evaluates, or loses the
                aggregator: no pair is evaluated a second time.
        """
        self.check_open()
        result: StatisticResult = await self._asked(
            "pairs",
            kernel,
            data,
            epsilon,
            P,
            delta=delta,
            noise=noise,
            zetas=zetas,
            public_label=public_label,
            engine=engine,
            covert=covert,
            security=security,
            label=label,
            number=number,
        )
        return result

    async def _asked(self, task: str, *arguments: Any, **named: Any) -> Any:
        """Run a request of the named task and return its result; ConfigError if it cannot be saved."""
        from smpc_dp.session.tasks import find_task

        asked = find_task(task)
        if self._state.saves and not asked.is_saved:
            reason = f"a request for '{task}' is not saved yet"
            raise ConfigError.at("state", reason, ConfigCheck.UNSUPPORTED)
        return await asked.request(self._requests, *arguments, **named)

    def compare(self, tree: Mapping[str, Any], structure: str, bounds: Bounds | None = None) -> str:
        """Return text on where a tree of arrays differs from the structure that others ask for.

        `structure`: the part of their operation from "tree:" on, as the aggregator's event of the request
        shows it. Nothing is sent.
        """
        from smpc_dp.trees import differing, flatten

        flattened = flatten(
            tree, self._requests.membership.encoding, party=self.party, bounds=bounds, clip=True
        )
        return differing(flattened, structure)

    async def sum_encoded(
        self,
        kind: Kind,
        ring_vector: RingVector,
        clipped: int = 0,
        label: str = "",
        number: int | None = None,
    ) -> Result:
        """Take part in a request with an already encoded vector; return the sum or average.

        For callers who check an input before they connect. `ring_vector` is copied.
        """
        from smpc_dp.secagg.requests.vector_requests import check_sums, run_encoded

        self.check_open()
        check_sums(self._requests, kind)
        self._requests.take(number, label)
        return await run_encoded(self._requests, kind, EncodedVector(ring_vector.copy(), clipped), label)


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
    web: WebSettings | None = None,
    state: StateFolder | None = None,
    counter: str | os.PathLike[str] | None = None,
) -> AsyncIterator[Session]:
    """Context manager that connects a party to its session, and yields the open Session.

    In a session without aggregator (gopa, `topology = "direct"`) it is connected to all other parties: it
    waits for them until `connect` seconds have passed, and goes on if enough are connected.

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
        web: settings of connections over HTTPS, such as a CA file, where the aggregator has an address
            `wss://host/path`. Proxies are those of `HTTPS_PROXY` and `NO_PROXY`.
        state: a folder of this party's own, made if it is missing, in no backup: after the process ended at
            any point, the same program goes on in its request and in the session. For sums and averages by
            secagg and gopa, statistics of pairs beside those of an aggregator, statistics of records, and
            learners whose whole state is a model and a step. Each call but `learn` then has a `label` or a
            `number`, by which it is known again; `resumed` of the result says that an earlier process began
            it. docs/guides/restore.md has examples.
        counter: a folder that nothing ever sets back, outside of `state`, which exists. Without it a process
            that ends after the first attestation of a request is lost from that request.

    Raises:
        ConfigError: every fault of the session file, or its differences from the aggregator's; another
            party's ledger; more rows in `table` than `max_rows`: nobody learns more than that the party is
            absent.
        LocalError: the key file or the ledger is missing or damaged, or others can read it; the state is used
            by another process, was set back, or cannot be used.
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
        web=web,
        state=state,
        counter=counter,
    )
    try:
        yield opened
    except BaseException:
        opened._state.interrupt()
        raise
    finally:
        if not opened.closed:
            await opened.close()
