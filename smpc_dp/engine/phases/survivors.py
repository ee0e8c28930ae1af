"""The rule against differences: all exact sums of a session are over one set of survivors.

Two exact sums over sets that differ in few parties give away the sum of these parties' vectors, where vectors
stay as they are or move little. So a party attests one set of survivors in a session, whatever the request,
and refuses every other one. protocols/secagg/README.md says what follows from that, and what does not.
"""

from __future__ import annotations

from collections.abc import Collection

from smpc_dp.errors import Code, PrivacyError
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context


class FixedSurvivors:
    """Survivors of all exact sums of one session, as one member first attested them.

    `members`: those of an earlier request, if there was one, and `request` its number.
    """

    def __init__(self, members: PartySet | None = None, request: int = 0) -> None:
        self._members = members
        self._request = request

    def outside(self, parties: Collection[int]) -> list[int]:
        """Return the parties that are not in the set, ascending; none before there is a set."""
        members = self._members
        return [] if members is None else sorted(party for party in parties if party not in members)

    def inside(self, parties: Collection[int]) -> list[int]:
        """Return the parties that are in the set, ascending; none before there is a set."""
        members = self._members
        return [] if members is None else sorted(party for party in parties if party in members)

    def fix(self, context: Context, survivors: PartySet) -> None:
        """Fix the set to the survivors of a run; raises the errors of `check`."""
        self.check(context, survivors)
        if self._members is None:
            self._members, self._request = survivors, context.request

    def check(self, context: Context, survivors: PartySet) -> None:
        """Compare the survivors of a run with the session's, if there are any.

        Raises:
            PrivacyError: the session has another set since an earlier request; names the missing and the new
                parties.
        """
        members = self._members
        if members is None or survivors.packed == members.packed:
            return
        differing = []
        for reason, these, those in (("without", members, survivors), ("with", survivors, members)):
            names = [context.names[party - 1] for party in these if party not in those]
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            differing += [f"{reason} {', '.join(names[:5])}{more}"] if names else []
        raise PrivacyError(
            f"rule against differences (same_survivors): the survivors of request {context.request} are not "
            f"those of request {self._request}, but {' and '.join(differing)}; two such sums give away their "
            "difference",
            code=Code.EARLIER,
        )
