#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fuzz/seeds/datapath: what datapath.cc reads, one file for each way through the programs. The same files each time."""
import pathlib
import struct

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "seeds" / "datapath"
CONTRIB, RESULT, HELD, BUSY, RESEND, MISMATCH, PING, PONG, ANSWER = 1, 2, 3, 4, 5, 6, 9, 10, 11
ROOT, WORKER, INNER, SERVER, MULTICAST, INNER6, LOCAL, SINGLE, KEY_ROOT, KEY_WORKER, KEY_INNER6, KEY_SERVER = range(12)  # as World's trees
TAG_RIGHT, TAG_CONTRARY, TAG_OF_OTHER_KEY, TAG_OF_DAMAGED = range(4)
NO_PAYLOAD, NO_DATA, RETRY, FOR_SERVER = 0x01, 0x02, 0x04, 0x20
RIGHT, STRANGER, UP, FROM_ROOT, OWN_HOST, GROUP, OTHER_HOST = range(7)
K, MASK = 0x9E3779B97F4A7C15, 2**64 - 1


def packet(tree, kind, child, seq, flags=0, op=0, wire=1, pool=0, fingerprint=1, seed=0x10, blocks=1, source=RIGHT, damage=(), tag=TAG_RIGHT):
    made = bytes([0, tree, kind, child, seq, flags, op << 4 | wire, fingerprint << 4 | pool, seed, blocks, source, tag << 2 | len(damage)])
    return made + b"".join(struct.pack("<HB", at, bits) for at, bits in damage)


def control(what, how):
    return bytes([next(kind for kind in range(0xC0, 0xE0) if kind % 7 == what), how])


def later(log2_ns):
    return control(0, log2_ns)


def raw(frame):
    return b"\xff" + struct.pack("<H", len(frame)) + frame


def frame(words, child=0, seq=0, source=(10, 0, 0, 2), frag=0x4000):
    """A contribution to ROOT, byte by byte from WIRE_FORMAT.md."""
    header = struct.pack("<BBHHBBBBHIHI", 1 << 4 | CONTRIB, 1, 1, 3, 0, 0, child, 0, len(words), seq, 0, 7)
    payload = struct.pack(f"<{len(words)}Q", *words)
    trailer = struct.pack("<QHH22x", 0, 1, 0)
    mixed = [header[:8], header[8:16], header[16:], trailer[:8], trailer[8:12], trailer[12:20], trailer[20:28], trailer[28:]]
    check = sum(words) + 17 * K + sum(int.from_bytes(word, "little") * K * (2 * i + 1) for i, word in enumerate(mixed))
    datagram = header + payload + struct.pack("<Q", check & MASK) + trailer
    udp = struct.pack(">HHHH", 40000, 28012, 8 + len(datagram), 0) + datagram
    ip = struct.pack(">BBHHHBBH4B4B", 0x45, 0, 20 + len(udp), 1, frag, 64, 17, 0, *source, 10, 0, 0, 1)
    return bytes(6) + bytes(6) + b"\x08\x00" + ip + udp


def all_of(tree, children, seq, **more):
    return b"".join(packet(tree, CONTRIB, child, seq, seed=0x10 + child, **more) for child in range(children))


def ping(tree, child, seq, kind=PING, **more):
    return packet(tree, kind, child, seq, NO_PAYLOAD, blocks=0, **more)


SEEDS = {
    "root-four-sums": b"".join(all_of(ROOT, 3, seq) for seq in range(4)),
    "root-next-round": b"".join(all_of(ROOT, 3, seq, blocks=2) for seq in range(6)),
    "root-retries": all_of(ROOT, 2, 0) + packet(ROOT, CONTRIB, 0, 0, RETRY) + packet(ROOT, CONTRIB, 2, 0) + packet(ROOT, CONTRIB, 1, 0, RETRY),
    "root-header-only": all_of(ROOT, 2, 0) + packet(ROOT, CONTRIB, 2, 0, NO_PAYLOAD) + packet(ROOT, CONTRIB, 1, 0, RETRY),
    "root-nobody-has-data": all_of(ROOT, 3, 0, flags=NO_DATA, blocks=11),
    "root-busy-and-stale": all_of(ROOT, 3, 0) + packet(ROOT, CONTRIB, 0, 4) + packet(ROOT, CONTRIB, 0, 2) + all_of(ROOT, 3, 2) + all_of(ROOT, 3, 4)
                           + packet(ROOT, CONTRIB, 0, 0),
    "root-mismatch": packet(ROOT, CONTRIB, 0, 0) + packet(ROOT, CONTRIB, 1, 0, fingerprint=2),
    "root-no-metadata": control(1, 0) + all_of(ROOT, 3, 0) + packet(ROOT, CONTRIB, 1, 0, RETRY),
    "root-fixes": all_of(ROOT, 3, 0, pool=8) + all_of(ROOT, 3, 1, pool=8),
    "root-no-words-yet": packet(ROOT, CONTRIB, 0, 0, pool=2) + control(2, 1) + packet(ROOT, CONTRIB, 0, 0, pool=2),
    "root-new-epoch": all_of(ROOT, 2, 0) + control(3, 0) + packet(ROOT | 0x80, CONTRIB, 2, 0) + all_of(ROOT, 3, 0),
    "strangers": b"".join(packet(ROOT, CONTRIB, 0, 0, source=source) for source in range(1, 7)),
    "damaged": b"".join(packet(ROOT, CONTRIB, 0, 0, damage=[(at, 1 << at % 8)]) for at in range(0, 240, 5)),
    "worker-results": b"".join(packet(WORKER, RESULT, 0xFF, seq) for seq in range(4)) + packet(WORKER, RESULT, 0xFF, 1)
                      + control(6, 1) + packet(WORKER, RESULT, 0xFF, 5, source=GROUP),
    "worker-replies": b"".join(packet(WORKER, kind, child, 0, NO_PAYLOAD) for kind in (HELD, BUSY, RESEND, MISMATCH) for child in range(3)),
    "worker-pings": packet(WORKER, PING, 0xFF, 9, NO_PAYLOAD, blocks=0, source=GROUP) + packet(WORKER, PONG, 1, 9, NO_PAYLOAD, blocks=0),
    "inner-up-and-down": all_of(INNER, 3, 0) + packet(INNER, RESULT, 5, 0, source=UP) + packet(INNER, CONTRIB, 0, 0, RETRY),
    "inner-asks-again": all_of(INNER, 3, 0) + packet(INNER, CONTRIB, 1, 0, RETRY) + later(21) + packet(INNER, CONTRIB, 1, 0, RETRY)
                        + packet(INNER, RESEND, 5, 0, NO_PAYLOAD, source=UP) + packet(INNER, CONTRIB, 0, 0, RETRY),
    "inner-pings": packet(INNER, PING, 0, 3, NO_PAYLOAD, blocks=0) + packet(INNER, PING, 2, 4, NO_PAYLOAD, blocks=0) + packet(ROOT, PING, 1, 5, NO_PAYLOAD, blocks=0),
    "inner-pongs": ping(INNER, 0, 3, seed=2) + ping(INNER, 2, 4) + b"".join(ping(INNER, 5, 9, PONG, source=UP, seed=way) for way in (0, 1, 2, 7))
                   + ping(INNER, 2, 9, PONG, source=OTHER_HOST, seed=0),
    "inner-from-itself": all_of(INNER, 3, 0) + packet(INNER, RESULT, 2, 0, source=OTHER_HOST) + packet(INNER, HELD, 2, 0, NO_PAYLOAD, source=OTHER_HOST),
    "inner6": all_of(INNER6, 2, 0) + packet(INNER6, RESULT, 5, 0, source=UP) + packet(INNER6, CONTRIB, 1, 0, RETRY),
    "server": all_of(SERVER, 2, 0, flags=FOR_SERVER) + packet(SERVER, CONTRIB, 0, 0, RETRY | FOR_SERVER) + later(21)
              + packet(SERVER, CONTRIB, 0, 0, RETRY | FOR_SERVER) + packet(SERVER, ANSWER, 0, 0, FOR_SERVER) + packet(SERVER, ANSWER, 0, 0, FOR_SERVER),
    "server-early": packet(SERVER, CONTRIB, 0, 0, FOR_SERVER) + packet(SERVER, ANSWER, 0, 0, FOR_SERVER) + all_of(SERVER, 2, 1),
    "multicast": all_of(MULTICAST, 2, 0) + all_of(MULTICAST, 2, 1, blocks=11),
    "local": all_of(LOCAL, 2, 0) + control(6, 6) + all_of(LOCAL, 2, 1) + packet(LOCAL, CONTRIB, 0, 0, RETRY),
    "operations": b"".join(all_of(ROOT, 3, seq, op=op, wire=wire, blocks=0x12) for seq, (op, wire) in enumerate([(1, 4), (2, 6), (3, 9), (4, 8)])),
    "more-operations": b"".join(all_of(ROOT, 3, seq, op=op, wire=10, blocks=0x31) for seq, op in enumerate([5, 6, 7, 8])),
    "key-sums": b"".join(all_of(KEY_ROOT, 3, seq) for seq in range(4)) + packet(KEY_ROOT, CONTRIB, 0, 3, RETRY),
    "key-header-only": all_of(KEY_ROOT, 2, 0) + packet(KEY_ROOT, CONTRIB, 2, 0, NO_PAYLOAD) + packet(KEY_ROOT, CONTRIB, 1, 0, RETRY),
    "key-wrong": b"".join(packet(KEY_ROOT, kind, child, 0, tag=tag) for kind in (CONTRIB, RESULT, PING, HELD) for child in (0, 2)
                          for tag in (TAG_CONTRARY, TAG_OF_OTHER_KEY)) + packet(KEY_ROOT, CONTRIB, 0, 0, pool=2, tag=TAG_OF_OTHER_KEY),
    "key-right-then-wrong": packet(KEY_ROOT, CONTRIB, 0, 0) + packet(KEY_ROOT, CONTRIB, 1, 0, tag=TAG_OF_OTHER_KEY) + packet(KEY_ROOT, CONTRIB, 1, 0),
    "key-epoch-between": control(5, KEY_ROOT) + packet(KEY_ROOT, CONTRIB, 0, 0) + packet(KEY_ROOT, CONTRIB, 1, 0, tag=TAG_OF_OTHER_KEY) + all_of(KEY_ROOT, 3, 0)
                         + packet(KEY_ROOT | 0x80, CONTRIB, 2, 1),
    "key-damaged": b"".join(packet(KEY_ROOT, CONTRIB, 0, 0, damage=[(at, 1 << at % 8)]) for at in range(0, 240, 5)),
    "key-tag-of-damaged": b"".join(packet(KEY_ROOT, CONTRIB, 0, 0, damage=[(at, 1 << at % 8)], tag=TAG_OF_DAMAGED) for at in range(0, 240, 5)),
    "key-gone": packet(KEY_ROOT, CONTRIB, 0, 0) + control(4, KEY_ROOT) + packet(KEY_ROOT, CONTRIB, 1, 0) + control(4, KEY_ROOT | 0x80) + all_of(KEY_ROOT, 3, 0)[12:],
    "key-strangers": b"".join(packet(KEY_ROOT, CONTRIB, 0, 0, source=source) for source in range(1, 7)),
    "key-not-asked-for": b"".join(packet(tree, CONTRIB, 0, 0, tag=TAG_CONTRARY) for tree in (ROOT, INNER6, SERVER)),
    "key-pings": ping(KEY_ROOT, 0, 5) * 2 + ping(KEY_ROOT, 0, 4) + ping(KEY_ROOT, 1, 4) + ping(KEY_ROOT, 0, 6) + ping(KEY_ROOT, 2, 1) * 2
                 + ping(KEY_INNER6, 0, 3) * 2 + ping(KEY_INNER6, 2, 4) * 2 + later(20) + ping(KEY_INNER6, 0, 4) + packet(KEY_ROOT, PING, 1, 7),
    "key-pongs": ping(KEY_WORKER, 1, 9, PONG) + later(16) + ping(KEY_WORKER, 1, 9, PONG) * 2 + later(31) + ping(KEY_WORKER, 1, 9, PONG)
                 + ping(KEY_WORKER, 0xFF, 9, source=GROUP) + ping(KEY_INNER6, 5, 9, PONG, source=UP),
    "key-inner-pongs": ping(KEY_INNER6, 0, 3) + ping(KEY_INNER6, 2, 4) + b"".join(ping(KEY_INNER6, 5, 9, PONG, source=UP, seed=way) for way in (0, 1, 2, 7)),
    "key-worker": b"".join(packet(KEY_WORKER, RESULT, 0xFF, seq) for seq in range(3)) + packet(KEY_WORKER, HELD, 1, 0, NO_PAYLOAD)
                  + packet(KEY_WORKER, RESULT, 0xFF, 3, tag=TAG_OF_OTHER_KEY) + packet(KEY_WORKER, RESEND, 1, 0, NO_PAYLOAD, tag=TAG_CONTRARY),
    "key-inner": all_of(KEY_INNER6, 3, 0) + packet(KEY_INNER6, RESULT, 5, 0, source=UP) + packet(KEY_INNER6, CONTRIB, 0, 0, RETRY),
    "key-server": all_of(KEY_SERVER, 2, 0, flags=FOR_SERVER) + packet(KEY_SERVER, ANSWER, 0, 0, FOR_SERVER, tag=TAG_CONTRARY)
                  + packet(KEY_SERVER, ANSWER, 0, 0, FOR_SERVER) + packet(KEY_SERVER, CONTRIB, 0, 0, RETRY | FOR_SERVER),
    "raw": raw(frame([1] * 16)) + raw(frame([2] * 16, child=1, source=(10, 0, 0, 3))) + raw(frame([3] * 16, frag=0x2000)) + raw(frame([])[:60])
           + raw(b"\xff" * 6 + bytes(6) + b"\x08\x06" + bytes(28)) + raw(b""),
}


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, content in SEEDS.items():
        (FOLDER / name).write_bytes(content)
    print(f"{len(SEEDS)} seeds")


main()
