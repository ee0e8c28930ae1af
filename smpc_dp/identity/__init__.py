"""Ed25519 identities, their certificates, and rosters."""
