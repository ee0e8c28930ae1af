"""Drives protocol machines over real channels: sessions, party processes, the localhost launcher."""
