"""Whole two-party evaluations as vectors: every input and random byte, and every message that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from smpc_dp.capabilities.pairs.active.plan import ActivePlan
from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol, parse_bristol
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, pack, unpack
from smpc_dp.capabilities.pairs.garbled.messages import CONTROL
from smpc_dp.capabilities.pairs.garbled.params import Mode, Output, PairwiseParameters, Security
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.garbled.plan import Plan
from smpc_dp.capabilities.pairs.roles import PairTransfers, aggregator_role, fresh_transfers, party_role
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.errors import SmpcError
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.memory.simulated_run import Signer, draw_signers, public_keys
from smpc_dp.wire.signing import Context, decode_envelope
from smpc_dp_lab.vectors.runs import Recording, context_json, draws_json, header, identities_json

JsonObject = dict[str, object]

GARBLER, EVALUATOR, AGGREGATOR = "alice", "bob", "hub"

# Every kind of gate; a gate of the second level stands before one of the first.
MIXED = """11 15
2 2 2
2 2 1

2 1 0 2 4 XOR
2 1 0 2 5 AND
1 1 5 6 INV
1 1 1 7 EQ
2 1 6 7 8 AND
2 1 1 3 9 AND
1 1 9 10 EQW
2 1 8 10 11 XOR
2 1 4 11 12 XOR
2 1 12 9 13 AND
1 1 0 14 EQ
"""
# Three values; no AND gate, so there are no tables.
FREE = """3 7
3 1 2 1
1 2

2 1 0 1 4 XOR
2 1 4 3 5 XOR
1 1 2 6 INV
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Settings of one recorded evaluation; inputs and random bytes follow from its name.

    `before`: the scenario that the same two have played before, with the oblivious transfers set up there;
    who `forgot` has lost its side of them. `k`: that of the transfers, if the security is "malicious".
    """

    name: str
    about: str
    output: Output
    instances: int = 1
    mode: Mode = "tile"
    evaluator_inputs: tuple[int, ...] | None = None
    circuit: str = MIXED
    before: Scenario | None = None
    forgot: str = ""
    covert: int = 0
    random_inputs: tuple[int, ...] = ()
    security: Security | None = None
    k: int = 0

    @property
    def plan(self) -> Plan:
        """The plan of the evaluation, as both sides compute it."""
        if self.security == "malicious":
            return ActivePlan(self.built, self.parameters, self.k)
        return Plan(self.built, self.parameters)

    @property
    def parameters(self) -> PairwiseParameters:
        """The parameters of the evaluation, as a session file would give them."""
        return PairwiseParameters(
            circuit="circuit.txt",
            garbler=GARBLER,
            evaluator=EVALUATOR,
            digest=self.built.digest.hex(),
            instances=self.instances,
            evaluator_inputs=None if self.evaluator_inputs is None else list(self.evaluator_inputs),
            output=self.output,
            mode=self.mode,
            covert=self.covert,
            random_inputs=list(self.random_inputs),
            security=self.security,
        )

    @property
    def built(self) -> Circuit:
        """The parsed circuit of the scenario."""
        return parse_bristol(self.circuit.encode())


BOTH = Scenario("both", "One instance; garbler and evaluator learn the output.", "both")
SCENARIOS = (
    BOTH,
    Scenario(
        "garbler",
        "Three instances, keys unique to each; the garbler learns the output.",
        "garbler",
        3,
        "unique",
    ),
    Scenario("evaluator", "Three instances; the evaluator learns the output.", "evaluator", 3),
    Scenario("aggregator", "Two instances; a third party alone learns the output.", "aggregator", 2),
    Scenario(
        "tiles",
        "Instances for two tiles, the second not full; the evaluator's transfers end inside a block.",
        "both",
        260,
    ),
    Scenario(
        "tiles-unique",
        "A tile that is not full, keys unique to each instance; a third party alone learns the output.",
        "aggregator",
        17,
        "unique",
    ),
    Scenario(
        "evaluator-has-no-input",
        "No transfer takes place, and a circuit without AND gates has no tables.",
        "both",
        2,
        evaluator_inputs=(),
        circuit=FREE,
    ),
    Scenario(
        "garbler-has-no-input",
        "Every input is chosen by transfer; three input values of the evaluator, of unequal widths.",
        "evaluator",
        2,
        evaluator_inputs=(0, 1, 2),
        circuit=FREE,
    ),
    Scenario(
        "inputs-interleaved",
        "The evaluator has the first and the last input value, the garbler the one between.",
        "garbler",
        65,
        evaluator_inputs=(0, 2),
        circuit=FREE,
    ),
    Scenario(
        "second",
        "After the run 'both' of the same two: their transfers are set up, and go on at the next index.",
        "both",
        2,
        before=BOTH,
    ),
    Scenario(
        "second-forgotten",
        "After the run 'both' of the same two: the evaluator has lost its side of the transfers, so both set "
        "up others.",
        "both",
        2,
        before=BOTH,
        forgot=EVALUATOR,
    ),
)


@dataclass(slots=True)
class Run:
    """The roles of one scenario; after `execute` also the messages sent and each role's result."""

    scenario: Scenario
    plan: Plan
    context: Context
    signers: dict[str, Signer]
    randomness: dict[str, Recording]
    inputs: dict[str, list[list[int]]]
    roles: dict[str, Participant]
    transfers: dict[str, PairTransfers]
    # (sender, receiver, bytes), in an order in which they can be sent.
    sent: list[tuple[str, str, bytes]] = field(default_factory=list)
    ends: dict[str, Evaluated] = field(default_factory=dict)

    def execute(self) -> Run:
        """Run all roles to their ends in memory, recording every message; return this object."""

        def listen(sender: str, to: str, data: bytes) -> list[bytes]:
            self.sent.append((sender, to, data))
            return [data]

        for name, end in evaluate_in_memory(self.roles, listen).items():
            if isinstance(end, SmpcError):
                raise end
            self.ends[name] = end
        return self

    def sent_to(self, receiver: str) -> dict[str, list[bytes]]:
        """Return the messages that each sender sent to `receiver`, in order."""
        queues: dict[str, list[bytes]] = {name: [] for name in self.roles}
        for sender, to, data in self.sent:
            if to == receiver:
                queues[sender].append(data)
        return queues


def new_run(scenario: Scenario) -> Run:
    """Return fresh roles for a scenario, with the same inputs and randomness every time."""
    plan = scenario.plan
    protocol, version = plan.protocol

    def source(name: str, purpose: str, of: str = scenario.name) -> SeededRandomnessForSimulation:
        return SeededRandomnessForSimulation(1, f"{protocol} vectors {of} {purpose} {name}")

    # Who has met before, is in the same session.
    setup = (scenario.before or scenario).name
    transfers = {name: fresh_transfers(plan) for name in (GARBLER, EVALUATOR)}
    if scenario.before:
        transfers = new_run(scenario.before).execute().transfers
    if scenario.forgot:
        transfers[scenario.forgot] = fresh_transfers(plan)
    third = scenario.output == "aggregator"
    everyone = (GARBLER, EVALUATOR, *([AGGREGATOR] if third else []))
    signers = draw_signers({name: source(name, "signing", setup) for name in everyone})
    context = Context(
        protocol=protocol,
        version=version,
        session_digest=source("", "session", setup).bytes(32),
        request=2 if scenario.before else 1,
        names=(GARBLER, EVALUATOR),
        aggregator=AGGREGATOR if third else "",
        keys=public_keys(signers),
    )
    randomness = {name: Recording(source(name, "run")) for name in everyone}
    indices = {GARBLER: plan.given(plan.garbler_values), EVALUATOR: plan.given(plan.evaluator_values)}
    inputs = {
        name: [_values(source(name, f"input {index}"), plan, index) for index in indices[name]]
        for name in indices
    }
    rows = {
        name: [
            pack(values, plan.circuit.inputs[index])
            for index, values in zip(indices[name], inputs[name], strict=True)
        ]
        for name in indices
    }
    roles: dict[str, Participant] = {
        name: party_role(context, signers[name], plan, rows[name], randomness[name], transfers[name])
        for name in (GARBLER, EVALUATOR)
    }
    if third:
        roles[AGGREGATOR] = aggregator_role(context, signers[AGGREGATOR], plan, randomness[AGGREGATOR])
    return Run(scenario, plan, context, signers, randomness, inputs, roles, transfers)


def find(name: str, scenarios: Sequence[Scenario] = SCENARIOS) -> Scenario:
    """Return the scenario of this name; raise ValueError for an unknown name."""
    [scenario] = [scenario for scenario in scenarios if scenario.name == name]
    return scenario


def _values(source: SeededRandomnessForSimulation, plan: Plan, index: int) -> list[int]:
    """Return one random value of an input (at most 8 bits wide) for each instance."""
    drawn = source.bytes(plan.parameters.instances)
    return [byte % (1 << plan.circuit.inputs[index]) for byte in drawn]


def to_json(scenario: Scenario) -> JsonObject:
    """Run a scenario, and return its test vector."""
    return run_json(new_run(scenario).execute())


def run_json(run: Run) -> JsonObject:
    """Return the test vector of a finished run: settings, inputs, draws, messages and results."""
    scenario, plan = run.scenario, run.plan
    first = next(plan.blocks())
    end = run.ends[GARBLER]
    drawn: JsonObject = {"random_inputs": list(scenario.random_inputs)}
    terms: JsonObject = {"copies": scenario.covert} | drawn if scenario.covert else {}
    if scenario.k:
        terms = {"k": scenario.k} | drawn
    return {
        **header("run", scenario.name, scenario.about),
        "before": f"run-{scenario.before.name}.json" if scenario.before else "",
        "forgot": scenario.forgot,
        "session": {
            **context_json(run.context),
            "garbler": GARBLER,
            "evaluator": EVALUATOR,
            "aggregator": run.context.aggregator,
            "evaluator_inputs": list(plan.evaluator_values),
            "instances": scenario.instances,
            "output": scenario.output,
            "mode": scenario.mode,
        }
        | terms,
        "circuit": format_bristol(plan.circuit).decode(),
        "plan": {"tile": plan.tile, "block": first.count},
        "identities": identities_json(run.context, run.signers),
        "inputs": run.inputs,
        "randomness": draws_json(run.randomness),
        "intermediate": {
            "circuit_digest": plan.circuit.digest.hex(),
            "plan_digest": plan.digest.hex(),
            "run_id": end.run_id.hex(),
            "transcript": end.transcript.hex(),
        },
        "messages": [
            {"sender": sender, "receiver": to, "what": described(sender, data), "bytes": data.hex()}
            for sender, to, data in run.sent
        ],
        "result": {name: _learned(run, end) for name, end in run.ends.items()},
    }


def described(sender: str, data: bytes) -> str:
    """Return the step of a signed message, or "piece" for a bulk message."""
    return decode_envelope(data[1:], sender).step if data[0] == CONTROL else "piece"


def _learned(run: Run, end: Evaluated) -> Sequence[list[int]] | None:
    if end.outputs is None:
        return None
    return [unpack(rows, run.scenario.instances) for rows in end.outputs]
