# SPDX-License-Identifier: MIT
"""proxy.py PORT SEED [wrong]: a bad network to PORT of 127.0.0.1.

Prints its own port.  Bytes come late and in pieces of any size, and connections end anywhere.  With
"wrong", bits are flipped, which a checksum or TLS must detect.
"""
import asyncio
import random
import sys

target, seed = int(sys.argv[1]), int(sys.argv[2])
wrong = sys.argv[3:] == ["wrong"]
chance = random.Random(seed)


async def carry(reader, writer, both):
    try:
        while data := await reader.read(chance.choice((1, 100, 5000, 1 << 16, 1 << 18))):
            what = chance.random()
            if what < 0.1:
                await asyncio.sleep(chance.random() * 0.005)
            elif what < 0.115:
                writer.write(data[:chance.randrange(len(data) + 1)])
                break
            elif wrong and what < 0.12:
                at = chance.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1:]
                # After a flip in a length, a side may wait for bytes that never come: end the
                # connection.
                asyncio.get_running_loop().call_later(
                    0.5, lambda: [one.transport.abort() for one in both])
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        for one in both:
            one.close()


async def accept(reader, writer):
    try:
        there, back = await asyncio.open_connection("127.0.0.1", target)
    except OSError:
        writer.close()
        return
    both = (writer, back)
    await asyncio.gather(carry(reader, back, both), carry(there, writer, both))


async def main():
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
