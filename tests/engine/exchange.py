"""A request to a socket of the agent, and all that comes back."""

import asyncio


async def exchange(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], sent: bytes
) -> bytes:
    """Send the request; return the answer to its end, nothing if the request was not read whole."""
    reader, writer = streams
    writer.write(sent)
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
