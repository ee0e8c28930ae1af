"""Audits of logs: what is audited, by whom, and the pages that show it."""
