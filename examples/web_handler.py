"""An asyncio web server that answers once a record is stored: one producer for all requests.

`tidelog dev` in one terminal, `python examples/web_handler.py` in a second, in a third:
`curl -d espresso http://127.0.0.1:8080/orders` prints where the order was stored.
"""

import asyncio
import json
import sys

from tidelog.client.aio import AsyncProducer
from tidelog.client.errors import TidelogError

BODY_BYTES_MAX = 64 * 1024


async def handle(
    producer: AsyncProducer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One request: its path names the topic, its body is the record."""
    answer: dict[str, int | str]
    try:
        path = (await reader.readline()).split()[1].decode()
        length = 0
        while (line := await reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            if name.lower() == "content-length":
                length = min(int(value), BODY_BYTES_MAX)
        body = await reader.readexactly(length)
        # Requests that come together share a batch, and one flush of the broker.
        place = await producer.send_and_wait(path.strip("/"), body)
        status, answer = "201 Created", {"partition": place.partition, "offset": place.offset}
    except TidelogError as error:
        status, answer = "503 Service Unavailable", {"error": error.happened}
    except (IndexError, ValueError, asyncio.IncompleteReadError):
        status, answer = "400 Bad Request", {"error": "this is not a request"}
    content = json.dumps(answer).encode() + b"\n"
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + content)
    await writer.drain()
    writer.close()


async def main(port: int) -> None:
    """Serve until Ctrl-C."""
    async with AsyncProducer() as producer:
        server = await asyncio.start_server(
            lambda reader, writer: handle(producer, reader, writer), "127.0.0.1", port
        )
        async with server:
            print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080))
