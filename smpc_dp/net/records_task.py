"""The task "records": statistics of records, in one request or in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.net.session_file import SessionFile
from smpc_dp.net.tasks import Task

if TYPE_CHECKING:
    from smpc_dp.net.member import Membership
    from smpc_dp.privacy.accountant.ledger import Ledger


class RecordsTask(Task):
    """Statistics of records."""

    name: ClassVar[str] = "records"
    is_long_to_plan: ClassVar[bool] = True

    def other(self, _session: SessionFile) -> ConfigError:
        """Return the error of a request for a sum."""
        reason = "the session asks statistics of records: call statistics"
        return ConfigError.at("records", reason, ConfigCheck.UNSUPPORTED)

    def lacking(self, _session: SessionFile) -> ConfigError:
        """Return the error of a request for statistics in another session."""
        reason = "the session file has no records: it asks no statistics of them"
        return ConfigError.at("records", reason, ConfigCheck.UNSUPPORTED)

    def check_ledger(self, ledger: Ledger, membership: Membership) -> None:
        """Raise PrivacyError or ConfigError unless the ledger affords all steps of a request."""
        ledger.check([membership.event()] * membership.parameters.steps)


TASKS = (RecordsTask(),)
