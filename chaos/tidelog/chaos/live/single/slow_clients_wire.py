"""A caller that speaks HTTP/2 by hand, so that it can do what no gRPC library would: not read, send
half of a message, grant no window, send a byte at a time.

Owns frames and one plain socket. Knows as much of HTTP/2 as a listener needs to take calls from it:
headers go as literals, what the listener sends is looked at for its kind and its windows only.
"""

import socket
import struct
from collections.abc import Sequence
from typing import Final

import msgspec

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES: Final = 9
FRAME_BYTES_MAX: Final = 16_384
WINDOW_START: Final = 65_535
"""What either end may send before the other has granted more."""
WINDOW_MAX: Final = (1 << 31) - 1

DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PING: Final = 6
GO_AWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACKNOWLEDGEMENT: Final = 0x1
END_HEADERS: Final = 0x4

CANCEL: Final = 8
_INITIAL_WINDOW: Final = 4
_READ_BYTES: Final = 65_536


class Frame(msgspec.Struct, frozen=True):
    """One frame."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """As it goes over the wire."""
    length = len(payload).to_bytes(3, "big")
    return length + struct.pack(">BBI", kind, flags, stream_id) + payload


def split_frames(data: bytes) -> tuple[list[Frame], bytes]:
    """Whole frames, and what is left of the last one."""
    frames, position = [], 0
    while len(data) - position >= FRAME_HEADER_BYTES:
        length = int.from_bytes(data[position : position + 3], "big")
        end = position + FRAME_HEADER_BYTES + length
        if end > len(data):
            break
        kind, flags, stream_id = struct.unpack_from(">BBI", data, position + 3)
        payload = data[position + FRAME_HEADER_BYTES : end]
        frames.append(Frame(kind, flags, stream_id & WINDOW_MAX, payload))
        position = end
    return frames, data[position:]


def literal(name: bytes, value: bytes) -> bytes:
    """A header that is not indexed."""
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def _length(value: int) -> bytes:
    """Of a text that is not compressed: seven bits, and what is over them in further bytes."""
    if value < 127:
        return bytes([value])
    data, value = bytearray([127]), value - 127
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    data.append(value)
    return bytes(data)


Fields = Sequence[tuple[bytes, bytes]]


def call_headers(method: bytes, more: Fields = ()) -> bytes:
    """What begins a call, without a deadline."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", method),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *more,
    )
    return b"".join(literal(name, value) for name, value in fields)


def message_prefix(length_bytes: int) -> bytes:
    """What stands before a message."""
    return b"\x00" + length_bytes.to_bytes(4, "big")


class RawCaller:
    """One connection. Nothing is read but where a method says so."""

    def __init__(self, address: str, *, window_bytes: int, timeout_s: float = 10.0) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timeout_s = timeout_s
        self._next_stream = 1
        self._rest = b""
        self._window = WINDOW_START
        self._windows: dict[int, int] = {}
        self._window_initial = WINDOW_START
        self.is_closed = False
        """Whether the listener has hung up."""
        self.received_bytes = 0
        settings = struct.pack(">HI", _INITIAL_WINDOW, window_bytes)
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
        if window_bytes > WINDOW_START:
            grant = struct.pack(">I", window_bytes - WINDOW_START)
            self._socket.sendall(frame(WINDOW_UPDATE, 0, 0, grant))

    def begin(self, method: str | bytes, more: Fields = ()) -> int:
        """Open a call; the number of its stream."""
        path = method.encode() if isinstance(method, str) else method
        stream_id, self._next_stream = self._next_stream, self._next_stream + 2
        self._windows[stream_id] = self._window_initial
        self.write(frame(HEADERS, END_HEADERS, stream_id, call_headers(path, more)))
        return stream_id

    def call(self, method: str, message: bytes) -> int:
        """A call with its one message, which is small; the answer is not read."""
        stream_id = self.begin(method)
        payload = message_prefix(len(message)) + message
        assert len(payload) <= FRAME_BYTES_MAX, "one frame holds it"
        self.write(frame(DATA, END_STREAM, stream_id, payload))
        return stream_id

    def reset(self, stream_id: int) -> None:
        """Withdraw a call."""
        self.write(frame(RST_STREAM, 0, stream_id, struct.pack(">I", CANCEL)))

    def end(self, stream_id: int) -> None:
        """No more from here."""
        self.write(frame(DATA, END_STREAM, stream_id))

    def send_some(self, stream_id: int, data: bytes) -> int:
        """As much as the windows allow now; how much that was."""
        room = min(self._window, self._windows[stream_id], len(data))
        for position in range(0, room, FRAME_BYTES_MAX):
            part = data[position : min(position + FRAME_BYTES_MAX, room)]
            self.write(frame(DATA, 0, stream_id, part))
        self._window -= max(room, 0)
        self._windows[stream_id] -= max(room, 0)
        return max(room, 0)

    def read_some(self, wait_s: float) -> list[Frame]:
        """What has come or comes within the time; settings and pings are answered."""
        if self.is_closed:
            return []
        self._socket.settimeout(max(wait_s, 0.001))
        data: bytes | None
        try:
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            data = None
        except OSError:
            data = b""
        self._socket.settimeout(self._timeout_s)
        if data is None:
            return []
        if not data:
            self.close()
            return []
        self.received_bytes += len(data)
        frames, self._rest = split_frames(self._rest + data)
        for each in frames:
            self._answer(each)
        return frames

    def close(self) -> None:
        """Hang up."""
        self.is_closed = True
        self._socket.close()

    def _answer(self, each: Frame) -> None:
        if each.kind == SETTINGS and not each.flags & ACKNOWLEDGEMENT:
            for position in range(0, len(each.payload), 6):
                name, value = struct.unpack_from(">HI", each.payload, position)
                if name == _INITIAL_WINDOW:
                    self._move_initial(value)
            self.write(frame(SETTINGS, ACKNOWLEDGEMENT, 0))
        elif each.kind == PING and not each.flags & ACKNOWLEDGEMENT:
            self.write(frame(PING, ACKNOWLEDGEMENT, 0, each.payload))
        elif each.kind == WINDOW_UPDATE:
            (granted,) = struct.unpack(">I", each.payload)
            if each.stream_id == 0:
                self._window += granted
            elif each.stream_id in self._windows:
                self._windows[each.stream_id] += granted

    def _move_initial(self, value: int) -> None:
        change = value - self._window_initial
        self._window_initial = value
        for stream_id in self._windows:
            self._windows[stream_id] += change

    def write(self, data: bytes) -> None:
        """Frames as they are."""
        if self.is_closed:
            return
        try:
            self._socket.sendall(data)
        except OSError:
            self.close()
