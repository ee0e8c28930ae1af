"""Learning algorithms, each written once against an `Averager` or a `PeerExchange`; no cryptography here."""
