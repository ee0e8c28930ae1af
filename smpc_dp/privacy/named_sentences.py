"""Named sentences, of which claims, assumptions and limits are composed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from smpc_dp.errors import LocalError


@dataclass(frozen=True, slots=True)
class NamedSentences:
    """Immutable list of named sentences, from which claims about privacy are put together.

    Made by `of`. `items`: pairs of a name, a short identifier in lower case, and its sentence. Raises
    LocalError for another name, and for two that are equal.
    """

    items: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        names = self.names
        for name in names:
            if not (name.isidentifier() and name.islower()):
                raise LocalError(f"{name!r} is no name of a sentence: an identifier in lower case")
            if names.count(name) > 1:
                raise LocalError(f"two sentences have the name {name!r}")

    @classmethod
    def of(cls, /, **sentences: str | None) -> Self:
        """Return a list of these named sentences in order; those that are None are left out."""
        return cls(tuple((name, sentence) for name, sentence in sentences.items() if sentence is not None))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sentences, in order."""
        return tuple(name for name, _ in self.items)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Texts of the sentences, in order."""
        return tuple(sentence for _, sentence in self.items)

    def __add__(self, other: NamedSentences) -> NamedSentences:
        """Return these sentences and then the others; raise LocalError for a name that both have."""
        return NamedSentences(self.items + other.items)

    def without(self, *names: str) -> NamedSentences:
        """Return the list without the named sentences; raise LocalError for an unknown name."""
        self._check_present(names)
        return NamedSentences(tuple(item for item in self.items if item[0] not in names))

    def replaced(self, /, **sentences: str) -> NamedSentences:
        """Return a list with new texts for some names, in the same order; LocalError for an unknown name.

        Raises LocalError for a name that is not there.
        """
        self._check_present(sentences)
        return NamedSentences(tuple((name, sentences.get(name, sentence)) for name, sentence in self.items))

    def _check_present(self, names: Iterable[str]) -> None:
        """Raise LocalError if no sentence has one of these names."""
        if absent := [name for name in names if name not in self.names]:
            known = ", ".join(self.names)
            raise LocalError(f"no sentence is called {', '.join(absent)}: there are {known}")


NO_SENTENCES = NamedSentences()
