"""Models of PyTorch averaged over the parties of a session, every few steps of a training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, OtherRequestError
from smpc_dp.optional import import_optional

if TYPE_CHECKING:
    from smpc_dp.engine.result import Result
    from smpc_dp.integrations.declared import DeclaredPrivacy
    from smpc_dp.sync import Session
    from smpc_dp.trees import Bounds

__all__ = ["Averaging"]

torch = import_optional("torch")

# Beginning of the label of an average; the number of steps follows.
_LABEL = "step "


class Averaging:
    """Context manager that averages a PyTorch model over all parties after every `every` training steps.

    All parties take the same number of steps. Steps that are left over when the block ends are followed by an
    average too, unless it ends by an error. Integers of the state, such as counters of batches, and the
    optimiser's state stay the party's own.

    Args:
        model: a module; its state dict is what is averaged, in place.
        session: of `smpc_dp.sync`; its `length` is the number of values.
        every: steps between two averages. After OtherRequestError, as of a process that was started anew,
            further steps count from the average before the next that can be joined, and that one has weight
            0 of this party: its model is replaced by the others' and not part of it. In a session without
            weights it is a ConfigError.
        weight: this party's secret weight, such as its number of examples, in a session with weights.
        choose: which entries of the state dict are averaged, by name: for adapters alone
            `lambda name: "lora_" in name`. All by default.
        bounds, clip: as of `Session.average`; paths are `['NAME']`.
        declared: what makes the model private by itself, such as Opacus; charged once, before the first
            average. The session has then no weights, whose sum would be exact, and nothing but parameters is
            averaged: an optimiser that adds noise adds none to other states, such as running means.

    Attributes:
        results: of the averages so far.
    """

    def __init__(
        self,
        model: Any,
        session: Session,
        *,
        every: int,
        weight: float | None = None,
        choose: Callable[[str], bool] = lambda _name: True,
        bounds: Bounds | None = None,
        clip: bool = False,
        declared: DeclaredPrivacy | None = None,
    ) -> None:
        if every < 1:
            raise ConfigError.at("every", f"must be at least 1, is {every}", ConfigCheck.RANGE)
        self.results: list[Result] = []
        self._model, self._session, self._every, self._choose = model, session, every, choose
        self._options: dict[str, Any] = {"weight": weight, "bounds": bounds, "clip": clip}
        self._steps, self._declared = 0, declared
        # Of an average that can be joined while the model is not of the others' steps.
        self._number: int | None = None
        if declared is not None:
            self._check_private()
        values = sum(tensor.numel() for tensor in self._state().values())
        if values != session.length:
            reason = f"{session.party}: has {values} values to average, vectors have {session.length}"
            raise ConfigError.at("model", reason, ConfigCheck.SHAPE)

    def step(self) -> None:
        """Count a training step; after every `every` of them, average the model over the parties."""
        self._steps += 1
        if self._steps % self._every == 0:
            self._average()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._steps % self._every:
            self._average()

    def _state(self) -> dict[str, Any]:
        """Return the model's floating-point tensors to be averaged, not copied."""
        state = self._model.state_dict().items()
        return {name: tensor for name, tensor in state if tensor.is_floating_point() and self._choose(name)}

    def _check_private(self) -> None:
        """Raise ConfigError if the average would include values that are not private parameters."""
        party = self._session.party
        parameters = {name for name, _ in self._model.named_parameters()}
        issues = [
            ConfigIssue(
                f"model[{name!r}]", f"{party}: is no parameter, so without noise", ConfigCheck.CONFLICT
            )
            for name in self._state()
            if name not in parameters
        ]
        if self._session.max_weight:
            reason = f"{party}: the sum of secret weights is exact; with `declared` it must be 0"
            issues.append(ConfigIssue("max_weight", reason, ConfigCheck.CONFLICT))
        if issues:
            raise ConfigError(issues)

    def _average(self) -> None:
        """Average the model over all parties, and load the average; ConfigError if it cannot catch up."""
        options = self._options
        if self._number is not None:
            if not self._session.max_weight:
                reason = f"{self._session.party}: has missed an average, and a session without weights"
                reason += " has none without its old model: start all anew, from a stored model"
                raise ConfigError.at("max_weight", reason, ConfigCheck.MISSING)
            options = options | {"weight": 0}
        if self._declared is not None:
            self._declared.permit()
        state = self._state()
        try:
            result = self._session.average(
                state, label=f"{_LABEL}{self._steps}", number=self._number, **options
            )
        except OtherRequestError as error:
            self._follow(error)
            raise
        self._number = None
        with torch.no_grad():
            for name, tensor in state.items():
                tensor.copy_(result.tree[name])
        self.results.append(result)

    def _follow(self, error: OtherRequestError) -> None:
        """Set steps and request number so that this party joins the next request that the error names."""
        asked = (error.asked_label or "").removeprefix(_LABEL)
        steps = int(asked) if asked.isdecimal() else error.asked * self._every
        self._steps = max(0, steps + (error.next - error.asked - 1) * self._every)
        self._number = error.next
