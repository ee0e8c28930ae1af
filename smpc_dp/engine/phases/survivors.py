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
    """The set of parties whose vectors all exact sums of a session must have, fixed by the first sum.

    `members`: those of an earlier request, if there was one, and `request` its number.
    """

    def __init__(self, members: PartySet | None = None, request: int = 0) -> None:
        self._members = members
        self._request = request

    def outside(self, parties: Collection[int]) -> list[int]:
        """Return the given parties that are not in the fixed set, ascending; empty before it is fixed."""
        members = self._members
        return [] if members is None else sorted(party for party in parties if party not in members)

    def inside(self, parties: Collection[int]) -> list[int]:
        """Return the given parties that are in the fixed set, ascending; empty before it is fixed."""
        members = self._members
        return [] if members is None else sorted(party for party in parties if party in members)

    def fix(self, context: Context, survivors: PartySet) -> None:
        """Fix the set to a run's survivors; raise PrivacyError if another set was fixed before."""
        self.check(context, survivors)
        if self._members is None:
            self._members, self._request = survivors, context.request

    def check(self, context: Context, survivors: PartySet) -> None:
        """Raise PrivacyError if a run's survivors differ from the fixed set; do nothing before it is fixed.

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
