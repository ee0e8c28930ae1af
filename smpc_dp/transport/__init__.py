"""The library's only sockets: mutually authenticated TLS 1.3 channels between the members of a roster."""
