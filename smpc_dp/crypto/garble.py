"""Half-gates garbling of one circuit for many instances, by the core.

[Zahur, Rosulek, Evans 2015] with the hash and the re-keying of [Guo, Katz, Wang, Weng, Yu 2020].
The hash, its proof and the order of the tables are specified in `core/src/garble/mod.rs`.

**Security.** Against a semi-honest garbler and a malicious evaluator, who learns no more than the output: it
holds one label of each wire. In the ideal cipher model, with p the adversary's AES calls and q the number of
half-gates and hashed outputs over all instances, its advantage is at most

- `Mode.UNIQUE`, a key for each half-gate of each instance: 2 p / 2^127;
- `Mode.TILE`, a key for each half-gate shared by a tile of at most T = 4096 instances:
  2 T p / 2^127 + (T - 1) q / 2^127, with the tile in use for T. That is 12 bits less, for speed.

Over many runs see `docs/proofs/garbling.md`: the garbler draws the starts at random, so keys of
different runs coincide only by chance.

**A corrupted table.** Tables carry no authentication of their own; the channel has it. A flipped bit of T_G
of a gate changes the label of its output only where the colour of the gate's first input is 1, one of T_E
where that of the second is 1. There the same bit of the label is flipped, and the label is neither of the two
of its wire. A flip of bit 0 turns the colour and with it the bit that is
decoded; any other passes XOR gates unseen and makes the label after the next AND gate garbage, of a
random colour. So outputs decoded by colour can be wrong without detection. Outputs checked by label hashes
(`check_labels`) are refused unless the label is right: to pass as the other label, what was added would have
to be the offset (2^-127 a guess). It never gives the evaluator another label. A *malicious* garbler can
corrupt its own tables and learn a bit inside the circuit from whether the evaluator complains.

**Oblivious transfer.** The offset is fresh for each instance, so a correlated OT with one offset of its own
does not give labels as it is. Either send both labels (`zero_labels`, and these XOR `deltas`) by chosen OT;
or let OT give random pairs (r0, r1), make r0 the zero label and send the one block r0 ^ r1 ^ delta, which
corrects the pair to the offset (`transfer`). If the choices were random, `flip` makes up for it where the
input is another: one public bit each.

**The garbler's own inputs.** The evaluator holds their active labels, which need only be random: both sides
draw them from a public seed (`open_inputs`), and nothing is sent. The garbler's bits are in the zero labels,
active ^ bit * delta, which nobody else sees.

Labels are uint8 arrays (wires, instances, 16); tables are uint8 arrays or bytes. The core overwrites its
secrets when it drops them; the arrays that it returns are the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp import _core
from smpc_dp._core import GarblingCircuit as GarblingCircuit
from smpc_dp.errors import Check, VerificationError

Bytes = NDArray[np.uint8]
Wires = NDArray[np.uint32]

LABEL_BYTES = 16
SEED_BYTES = 32
START_BYTES = 16


def kernels() -> list[str]:
    """Return the garbling kernels that the processor has and `SMPC_DP_KERNELS` permits, the used one last."""
    return _core.garbling_kernels()


class Mode(StrEnum):
    """How half-gates share AES keys: each has its own, or the instances of a tile share one."""

    UNIQUE = "unique"
    TILE = "tile"


@dataclass(frozen=True)
class Run:
    """Settings of one garbling; both sides have equal start, mode, tile and instances.

    `start`: 16 bytes, public, the hash of the run's transcript and of the purpose: no two garblings may have
    the same. `tile`: 1 to 4096 instances (`GarblingCircuit.suggest_tile`). A large batch is done in windows:
    runs with the same start and seed and other instances, `first_instance` being a multiple of the
    tile; memory is that of a window's inputs and outputs. `kernel`: None for the fastest.
    """

    start: bytes
    mode: Mode
    tile: int
    n_instances: int
    first_instance: int = 0
    threads: int = 1
    kernel: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Return all settings except instances and start, as arguments for the native code."""
        return {
            "mode": self.mode.value,
            "tile": self.tile,
            "first_instance": self.first_instance,
            "threads": self.threads,
            "kernel": self.kernel,
        }


def compile_circuit(
    op: NDArray[np.uint8],
    a: NDArray[np.uint32],
    b: NDArray[np.uint32],
    out: NDArray[np.uint32],
    *,
    n_wires: int,
    n_inputs: int,
    outputs: NDArray[np.uint32],
) -> GarblingCircuit:
    """Check and compile for garbling a circuit given as arrays of gates; ValueError for a wrong gate.

    `op`: 0 XOR, 1 AND, 2 INV, 3 EQ (`out` is the constant `a`), 4 EQW (copy); `b` is 0 for the last three.
    Wires 0 to `n_inputs - 1` are the inputs. Raises ValueError that names the gate and the bound.
    """
    return GarblingCircuit(op, a, b, out, n_wires, n_inputs, outputs)


class Garbler:
    """Garbler of a circuit (half-gates): makes wire labels, garbled tables and decoding information.

    `seed`: 32 bytes from the operating system, for this run alone. Raises ValueError for a wrong length or
    parameter, with the bound.
    """

    def __init__(self, circuit: GarblingCircuit, run: Run, seed: bytes) -> None:
        self._core = _core.Garbler(circuit, run.n_instances, seed, run.start, **run.settings)

    @property
    def done(self) -> bool:
        """Whether the garbler has made all garbled tables."""
        return self._core.done

    def encode(self, first: int, bits: Bytes) -> Bytes:
        """Return the active labels of `bits` (inputs, instances) for the input wires from `first` on."""
        return self._core.encode(first, bits)

    def zero_labels(self, first: int, count: int) -> Bytes:
        """Return the secret labels for 0 of `count` input wires from `first` on."""
        return self._core.zero_labels(first, count)

    def set_zero_labels(self, first: int, labels: Bytes) -> None:
        """Set the labels for 0 of input wires from `first` on, before tables are made.

        They must be uniformly random to the evaluator, like messages of a random OT.
        """
        self._core.set_zero_labels(first, labels)

    def open_inputs(self, wires: Wires, bits: Bytes, seed: bytes) -> None:
        """Set labels of the garbler's inputs so that the active ones follow from a public seed.

        `bits` (wires, instances), 0 or 1; `seed`: 16 bytes, fresh for each run, which the evaluator may know.
        Before the first table. Raises ValueError for an input that has labels, or other shapes.
        """
        self._core.open_inputs(wires, bits, seed)

    def flip(self, wires: Wires, bits: Bytes) -> None:
        """Swap the labels for 0 and 1 of each wire and instance where `bits` is 1.

        Before the first table. Raises ValueError for an input whose labels have not been given, or other
        shapes.
        """
        self._core.flip(wires, bits)

    def transfer(self, wires: Wires, index: int, pads: Bytes) -> None:
        """Set wires' labels from the pads of oblivious transfers; overwrite pads[1] with the corrections.

        The labels of `wires`, each of all instances, are numbered in order; `pads` (2, transfers, 16) are
        those from number `index` on. Every label once and in order, before the first table; else ValueError.
        """
        self._core.transfer(wires, index, pads)

    def correct(self, pads: Bytes) -> None:
        """Overwrite pads[1] of oblivious transfers with corrections that fit the label offsets.

        `pads` (2, transfers, 16) are of whole wires, each of all instances. Sets no label, unlike `transfer`.
        Raises ValueError for another shape.
        """
        self._core.correct(pads)

    def list_digest(self, wires: Wires, pads: Bytes, start: bytes, key: bytes) -> bytes:
        """Return a keyed 32-byte hash of the hashes of both labels of each listed input.

        Places are the inputs `wires`, each of all instances; the last ones are masks, whose labels are the
        zero labels xor `pads` (masks, instances, 16). Place k is hashed as output k, under keys from `start`
        (16 bytes). Of each pair the label of colour 0 comes first, of masks that of 0. `key`: 32 bytes.
        Source: protocols/covert/README.md. Raises ValueError for other shapes or lengths.
        """
        return self._core.list_digest(wires, pads, start, key)

    def open_list(self, wires: Wires, pads: Bytes, start: bytes, bits: Bytes) -> bytes:
        """Return the active labels of listed inputs, each with the hash of its other label.

        `bits` (positions, instances) are 0 or 1; the other arguments and errors are those of `list_digest`.
        """
        return self._core.open_list(wires, pads, start, bits)

    def deltas(self) -> Bytes:
        """Return the secret offset between each wire's two labels, shape (instances, 16)."""
        return self._core.deltas()

    def fill(self, buffer: Bytes) -> int:
        """Write the next garbled tables into `buffer`; return their length in bytes, 0 at the end.

        Reuse the buffer: fresh memory costs as much as the garbling. Raises ValueError if it cannot hold
        a gate of a tile, 32 * tile bytes.
        """
        return self._core.fill(buffer)

    def next_tables(self, max_bytes: int) -> bytes | None:
        """Return the next garbled tables, at most `max_bytes`, or None at the end."""
        buffer = np.empty(max_bytes, dtype=np.uint8)
        written = self.fill(buffer)
        return buffer[:written].tobytes() if written else None

    def output_colours(self) -> Bytes:
        """Return the colour bits of the outputs' labels for 0; ValueError before all tables are made.

        Raises ValueError until all tables are made, like the two functions below.
        """
        return self._core.output_colours()

    def output_zero_labels(self) -> Bytes:
        """Return each output's secret label for 0; ValueError before all tables are made."""
        return self._core.output_zero_labels()

    def output_hashes(self) -> Bytes:
        """Return hashes of both labels of each output, by colour; ValueError before all tables are made."""
        return self._core.output_hashes()


class Evaluator:
    """Evaluator of a garbled circuit: takes input labels and tables, and returns output labels."""

    def __init__(self, circuit: GarblingCircuit, run: Run) -> None:
        self._core = _core.Evaluator(circuit, run.n_instances, run.start, **run.settings)

    @property
    def remaining(self) -> int:
        """Number of bytes of garbled tables that have not been fed yet."""
        return self._core.remaining

    def set_input_labels(self, first: int, labels: Bytes) -> None:
        """Set the active labels of input wires from `first` on; ValueError for one that has labels.

        Raises ValueError for an input that has labels.
        """
        self._core.set_input_labels(first, labels)

    def open_inputs(self, wires: Wires, seed: bytes) -> None:
        """Derive the active labels of the garbler's inputs `wires` from a public seed."""
        self._core.open_inputs(wires, seed)

    def transfer(self, wires: Wires, index: int, choices: Bytes, pads: Bytes, corrections: Bytes) -> None:
        """Set the labels that oblivious transfers give for `choices`, from pads and corrections.

        `wires`, `index` and errors as for `Garbler.transfer`. Reads all corrections whatever the choices.
        """
        self._core.transfer(wires, index, choices, pads, corrections)

    def feed(self, tables: Bytes | bytes | memoryview) -> None:
        """Evaluate more gates with the next bytes of tables; ValueError: too many, or an input lacks labels.

        Raises ValueError for more bytes than remain, and while an input has no labels.
        """
        self._core.feed(np.frombuffer(tables, dtype=np.uint8))

    def output_labels(self) -> Bytes:
        """Return the outputs' active labels; raise ValueError before all garbled tables are fed."""
        return self._core.output_labels()

    def output_colours(self) -> Bytes:
        """Return the colour bits of the outputs' active labels: output bits XOR the garbler's colours.

        They are the output bits, masked by the garbler's colours.
        """
        return self._core.output_colours()


def label_hashes(labels: Bytes, run: Run) -> Bytes:
    """Return the hash of each output label, shape (wires, instances, 16); ValueError for another shape.

    Raises ValueError for another shape.
    """
    if labels.shape[1:] != (run.n_instances, LABEL_BYTES):
        raise ValueError(f"labels: shape {labels.shape}, not (outputs, {run.n_instances}, {LABEL_BYTES})")
    return _core.garbling_label_hashes(
        labels, run.start, mode=run.mode.value, tile=run.tile, first_instance=run.first_instance
    )


def opened_list(opened: Bytes, bits: Bytes, run: Run, key: bytes) -> tuple[bytes, Bytes]:
    """Return (digest of a list of input labels, active labels) from labels opened by the garbler.

    Args:
        opened: shape (positions, instances, 32).
        bits: of the masks, the last positions, 0 or 1, shape (masks, instances).
        run: `start` is that of the list.
        key: 32 bytes.

    The labels have shape (positions, instances, 16). Raises ValueError for other shapes or lengths.
    """
    return _core.garbling_opened_list(
        opened, bits, run.start, key, mode=run.mode.value, tile=run.tile, first_instance=run.first_instance
    )


def check_labels(labels: Bytes, hashes: Bytes, run: Run) -> Bytes:
    """Return the colours of output labels; VerificationError unless they match the garbler's hashes.

    `labels` are the evaluator's, `hashes` the garbler's `output_hashes`. Raises VerificationError that names
    the first output and instance whose label is neither of the two, ValueError for shapes that do not fit.
    """
    if hashes.shape != (*labels.shape[:2], 2, LABEL_BYTES):
        raise ValueError(f"hashes: shape {hashes.shape} for labels of shape {labels.shape}")
    seen = label_hashes(labels, run)
    colours = np.bitwise_and(labels[:, :, 0], np.uint8(1))
    expected = np.where(colours[:, :, np.newaxis] == 1, hashes[:, :, 1], hashes[:, :, 0])
    wrong = np.argwhere((seen != expected).any(axis=2))
    if len(wrong):
        output, instance = wrong[0]
        number = run.first_instance + int(instance)
        raise VerificationError(
            f"label of output {output} of instance {number} is neither of its two labels", Check.BAD_LABEL
        )
    return colours
