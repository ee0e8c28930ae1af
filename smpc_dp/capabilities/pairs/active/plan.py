"""Plan of an evaluation that is secure against both sides: blocks, groups of triples, and coins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

from smpc_dp.capabilities.pairs.active.messages import ACTIVE, VERSION
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, GARBLER
from smpc_dp.capabilities.pairs.garbled.plan import BLOCK_LABELS, Block, Plan, rows_of_transfers
from smpc_dp.crypto.active import FEWEST, GROUP, MOST_NUMBER, bucket_size
from smpc_dp.crypto.active_opening import HIDING_BITS
from smpc_dp.crypto.garble import Wires
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.ot import FIELD_SIZES
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.errors import ConfigCheck, ConfigError

# Bits x, y and rho of a leaky triple, each shared.
LEAKY_BITS = 3
# Output bits of all instances that the aggregator may learn: shares of all come in one message.
MAX_THIRD_BITS = 1 << 24


@dataclass(frozen=True, slots=True)
class Group:
    """Size of a batch of AND triples that are checked together: `triples`, each made of `size` leaky ones."""

    number: int
    triples: int
    size: int

    @property
    def leaky(self) -> int:
        """How many leaky triples the group takes: the triples times the bucket size."""
        return self.triples * self.size


@dataclass(frozen=True)
class ActivePlan(Plan):
    """Plan of a maliciously secure two-party evaluation: the circuit, its parameters and message sizes.

    The input values that the parameters name as random are coins, which are no party's.
    Raises ConfigError as `Plan`, for tiles or copies, for another k, for more AND gates or leaky triples than
    one pair of setups has numbers for, and for more output bits than an aggregator takes.
    """

    protocol: ClassVar[tuple[str, int]] = (ACTIVE, VERSION)
    k: int = max(FIELD_SIZES)

    def __post_init__(self) -> None:
        super().__post_init__()
        parameters = self.parameters
        for where, given, refused in (
            ("mode", parameters.mode, parameters.mode != "unique"),
            ("covert", parameters.covert, parameters.covert != 0),
            ("k", self.k, self.k not in FIELD_SIZES),
        ):
            if refused:
                reason = f"{given!r} is not offered by an evaluation that is secure against both sides"
                raise ConfigError.at(where, reason, ConfigCheck.UNSUPPORTED)
        if parameters.instances > (most := self.most_instances):
            reason = f"{parameters.instances}, with output to the aggregator {most} at most"
            raise ConfigError.at("instances", reason, ConfigCheck.TOO_LARGE)
        if (numbers := max(self.leaky, self.gates)) > MOST_NUMBER:
            reason = f"{parameters.instances} need {numbers} leaky triples; both setups have {MOST_NUMBER}"
            raise ConfigError.at("instances", reason, ConfigCheck.TOO_LARGE)

    @cached_property
    def own_wires(self) -> tuple[Wires, Wires]:
        """Input wires of (the garbler, the evaluator), without random coins."""
        garbler, evaluator = (
            self.wires(self.given(values)) for values in (self.garbler_values, self.evaluator_values)
        )
        return garbler, evaluator

    @cached_property
    def coin_wires(self) -> Wires:
        """Input wires whose values both sides draw at random together."""
        return self.wires(self.random(range(len(self.circuit.inputs))))

    @cached_property
    def ands(self) -> int:
        """The number of AND gates in one instance of the circuit."""
        return self.circuit.and_count

    @property
    def gates(self) -> int:
        """The number of AND gates in all instances together."""
        return self.ands * self.parameters.instances

    @cached_property
    def leaky(self) -> int:
        """The number of leaky AND triples that the whole evaluation consumes."""
        return self._of_all(lambda count: sum(group.leaky for group in self._groups_of(count)))

    @cached_property
    def rows(self) -> tuple[int, int]:
        """Numbers of transfers, padding included, of (the setup where the garbler sends, the other)."""

        def rows_of_masks(count: int, choosing: int, hiding: int) -> int:
            return rows_of_transfers(self._mask_count(choosing, count) + hiding)

        def rows_of_all(choosing: int) -> int:
            last = self.parameters.instances % self._block_size() or self._block_size()
            more = rows_of_masks(last, choosing, self._hiding) - rows_of_masks(last, choosing, 0)
            return self._of_all(partial(self._rows_of, choosing)) + more

        # In the garbler's setup the evaluator chooses.
        return rows_of_all(EVALUATOR), rows_of_all(GARBLER)

    def _rows_of(self, choosing: int, count: int) -> int:
        """Return the number of transfers of a block of `count` instances that a side chooses in, padded."""
        triples = (rows_of_transfers(LEAKY_BITS * group.leaky) for group in self._groups_of(count))
        return sum(triples) + rows_of_transfers(self._mask_count(choosing, count))

    @property
    def _transferred(self) -> str:
        """What takes indices of transfers in each instance, for an error."""
        return f"{self.ands} AND gates and {self.circuit.n_inputs} bits of inputs"

    @property
    def _block_rows(self) -> int:
        """The greatest number of indices of one setup that a whole block takes, padding included."""
        each = (self._rows_of(side, self._block_size()) for side in (GARBLER, EVALUATOR))
        return max(each) + rows_of_transfers(self._hiding)

    @cached_property
    def transfer_rows(self) -> int:
        """Number of oblivious transfers of the direction that needs more of them, padding included."""
        return max(self.rows)

    def mask_count(self, side: int, block: Block) -> int:
        """Return how many mask bits a side (0 garbler, 1 evaluator) draws for a block, all included.

        In the last block those that hide its sum from the other side are among them.
        """
        is_last = block.first + block.count == self.parameters.instances
        return self._mask_count(side, block.count) + (self._hiding if is_last else 0)

    def _mask_count(self, side: int, count: int) -> int:
        """Return the number of mask bits of one side, over all wires of `count` instances."""
        return (len(self.own_wires[side]) + len(self.coin_wires) + self.ands) * count

    @property
    def _hiding(self) -> int:
        """Number of random bits that hide a side's sum of output shares; 0 without an aggregator."""
        return HIDING_BITS if self.parameters.output == "aggregator" else 0

    @property
    def output_bits(self) -> int:
        """The number of output bits of all instances together."""
        return self.circuit.n_outputs * self.parameters.instances

    @property
    def most_instances(self) -> int:
        """Greatest number of instances of the circuit in one evaluation, limited by message sizes."""
        if self.parameters.output != "aggregator":
            return super().most_instances
        return min(super().most_instances, MAX_THIRD_BITS // max(1, self.circuit.n_outputs))

    def groups(self, block: Block) -> list[Group]:
        """Return the groups of AND triples of a block, numbered on from the blocks before."""
        before = block.number * self._group_count(self._block_size())
        return [
            Group(before + group.number, group.triples, group.size) for group in self._groups_of(block.count)
        ]

    def _groups_of(self, count: int) -> Iterator[Group]:
        """Yield the groups of AND triples for `count` circuit instances, numbered from 0."""
        gates = self.ands * count
        for number, first in enumerate(range(0, gates, GROUP)):
            triples = max(FEWEST, min(GROUP, gates - first))
            yield Group(number, triples, bucket_size(triples, self._all_groups))

    def _group_count(self, count: int) -> int:
        """Return the number of groups of AND triples for a block of `count` circuit instances."""
        return -(-self.ands * count // GROUP)

    @cached_property
    def _all_groups(self) -> int:
        """The number of groups of AND triples that the whole evaluation needs."""
        return self._of_all(self._group_count)

    def _of_all(self, number: Callable[[int], int]) -> int:
        """Return the sum over all blocks of a function of the block's number of instances."""
        full, rest = divmod(self.parameters.instances, self._block_size())
        return full * number(self._block_size()) + number(rest)

    def _block_size(self) -> int:
        """Return the number of circuit instances in each block but the last, to bound memory."""
        widest = max(1, self.circuit.n_inputs, self.circuit.n_outputs, self.compiled.n_slots)
        return max(1, min(BLOCK_LABELS // widest, GROUP // max(1, self.ands)))

    @cached_property
    def digest(self) -> bytes:
        """Hash of the plan, 32 bytes: both sides compare it, so that they divide the work alike."""
        coins = b"".join(encode_uint(index) for index in self.parameters.random_inputs)
        return digest(Label.ACTIVE_PLAN, super().digest, encode_uint(self.k), coins)


def plan_evaluation(circuit: Circuit, parameters: PairwiseParameters) -> Plan:
    """Return the plan of a two-party evaluation, semi-honest, covert or malicious as the parameters say."""
    return (ActivePlan if parameters.malicious else Plan)(circuit, parameters)
