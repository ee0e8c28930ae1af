"""What a fuzz target is.

A target takes any bytes. It returns what it has understood, written again, or None where one content has many
spellings; or it raises an `SmpcError`. Anything else is a bug: another exception, or bytes that were accepted
and are written in another way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from smpc_dp.errors import SmpcError
from tests.fuzz.inputs import Form, inputs

CORPUS = Path(__file__).with_name("corpus")
Decoder = Callable[[bytes], bytes | None]


@dataclass(frozen=True)
class Target:
    """A decoder with what it accepts. `cost` is about how many times a message's an input takes.

    `seeds`: may be a function, of those that take long to make.
    """

    name: str
    decoder: Decoder
    seeds: tuple[bytes, ...] | Callable[[], tuple[bytes, ...]]
    form: Form = "bytes"
    cost: int = 1

    def run(self, first: int, count: int, watch: Callable[[int, bytes], None] | None = None) -> None:
        """Try `count` inputs from number `first` on; raise AssertionError that has the input of a bug.

        `watch` is called with the number and content of each input before it is tried.
        """
        for number, content in inputs(self.name, self.form, self.all_seeds(), first, count):
            if watch is not None:
                watch(number, content)
            self.check(content, number)

    def check(self, content: bytes, number: int | None = None) -> None:
        """Try one input."""
        try:
            again = self.decoder(content)
        except SmpcError:
            return
        except Exception as error:
            raise AssertionError(f"{self.name}, input {number}: {content!r}") from error
        assert again is None or again == content, f"{self.name}, input {number}: {content!r}, again {again!r}"

    def all_seeds(self) -> tuple[bytes, ...]:
        """Return the seeds, and behind them the inputs that were found before."""
        return (*(self.seeds() if callable(self.seeds) else self.seeds), *self.result())

    def result(self) -> tuple[bytes, ...]:
        """Return the committed inputs of bugs that there were."""
        folder = CORPUS / self.name
        return tuple(file.read_bytes() for file in sorted(folder.iterdir())) if folder.is_dir() else ()
