"""The task "records": statistics of records, in one request or in steps."""

from __future__ import annotations

from typing import ClassVar

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.net.session_file import SessionFile
from smpc_dp.net.tasks import Task


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


TASKS = (RecordsTask(),)
