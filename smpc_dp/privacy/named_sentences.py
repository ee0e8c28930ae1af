"""Named sentences, of which claims, assumptions and limits are composed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from smpc_dp.errors import LocalError


@dataclass(frozen=True, slots=True)
class NamedSentences:
    """Sentences in order, each with a name of its own, by which claims are composed of others.

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
        """Return sentences in this order; a sentence of None does not hold, and is left out."""
        return cls(tuple((name, sentence) for name, sentence in sentences.items() if sentence is not None))

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(name for name, _ in self.items)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences, in order: what a reader sees."""
        return tuple(sentence for _, sentence in self.items)

    def __add__(self, other: NamedSentences) -> NamedSentences:
        """Return these sentences and then the others; raise LocalError for a name that both have."""
        return NamedSentences(self.items + other.items)

    def without(self, *names: str) -> NamedSentences:
        """Return the sentences but for the named ones; raise LocalError for a name that is not there."""
        self._check_present(names)
        return NamedSentences(tuple(item for item in self.items if item[0] not in names))

    def replaced(self, /, **sentences: str) -> NamedSentences:
        """Return these, with other sentences under some names, where those are.

        Raises LocalError for a name that is not there.
        """
        self._check_present(sentences)
        return NamedSentences(tuple((name, sentences.get(name, sentence)) for name, sentence in self.items))

    def _check_present(self, names: Iterable[str]) -> None:
        if absent := [name for name in names if name not in self.names]:
            known = ", ".join(self.names)
            raise LocalError(f"no sentence is called {', '.join(absent)}: there are {known}")


NO_SENTENCES = NamedSentences()
