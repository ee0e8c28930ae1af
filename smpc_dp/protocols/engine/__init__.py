"""The engine of message-driven roles: events, states, the pure step, its holder and the table of states."""
