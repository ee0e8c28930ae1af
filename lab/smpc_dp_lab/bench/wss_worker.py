"""Measuring process of `bench wss`: all members of one sum, at one kind of address."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import smpc_dp
from smpc_dp.identity.address import WebAddress
from smpc_dp.session.local import free_port
from smpc_dp.session.session_file import load_session

HOST = "localhost"
READ_BYTES = 1 << 18


def certificate(folder: Path) -> tuple[Path, Path]:
    """Return the files of a certificate of HOST, signed by itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    names = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    made = (
        x509.CertificateBuilder()
        .subject_name(names)
        .issuer_name(names)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "outer.pem", folder / "outer.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return files


@contextlib.asynccontextmanager
async def balancer(port: int, target: int, files: tuple[Path, Path]) -> AsyncIterator[None]:
    """Context manager of a TLS-ending proxy that forwards a port's connections to another port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await reader.read(READ_BYTES):
                writer.write(content)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=context)
    try:
        yield
    finally:
        server.close()


async def measure(path: Path, way: str) -> float:
    """Return the processor time of one sum of all parties, once they are connected."""
    loaded = load_session(path)
    roster = loaded.roster
    listened, outer, called = None, None, None
    async with contextlib.AsyncExitStack() as stack:
        if way != "host:port":
            files = certificate(path.parent)
            called = smpc_dp.WebSettings(ca_file=files[0])
            aggregator = roster.aggregator
            port = WebAddress.parse(aggregator.address or "").port if aggregator is not None else 0
            if way == "wss":
                outer, listened = smpc_dp.WebSettings(certificate=files[0], certificate_key=files[1]), port
            else:
                listened = free_port()
                await stack.enter_async_context(balancer(port, listened, files))
        listen_on = None if listened is None else f"127.0.0.1:{listened}"
        served = asyncio.create_task(smpc_dp.serve(path, requests=1, listen_on=listen_on, web=outer))
        sessions = [
            await stack.enter_async_context(smpc_dp.connect(path, party=name, web=called))
            for name in roster.party_names
        ]
        length = int(str(loaded.parameters["length"]))
        vectors = [np.full(length, 0.5) for _ in sessions]
        begun = time.process_time()
        results = await asyncio.gather(
            *(session.sum(vector) for session, vector in zip(sessions, vectors, strict=True))
        )
        await served
        taken = time.process_time() - begun
    if any(abs(float(result.value[-1]) - len(sessions) / 2) > 0.01 * len(sessions) for result in results):
        raise RuntimeError("a wrong sum")
    return taken


def main() -> None:
    """Measure the sum that the arguments describe, and print its processor time as JSON."""
    for name in ("HTTPS_PROXY", "https_proxy"):
        os.environ.pop(name, None)
    seconds = asyncio.run(measure(Path(sys.argv[1]), sys.argv[2]))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
