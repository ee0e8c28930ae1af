"""Runs protocol roles over real channels: sessions, party processes, the localhost launcher."""
