"""A gang's ranks agree on every step: the mean of their gradients, and whether to stop.

Rank 0 listens on MASTER_ADDR:MASTER_PORT. Each step every rank sends its numbers to rank 0, which
adds them in the order of ranks (floating-point sums depend on order) and answers with the mean.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import socket
import struct
import time
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RENDEZVOUS_S = 60.0
STEP_S = 60.0
_MAX_MESSAGE_BYTES = 256 << 20
_LENGTH = struct.Struct("!Q")


class PeerLost(ConnectionError):
    """A rank went away or does not answer; no step can be taken without it."""


class Ranks(Protocol):
    """What training needs of the others."""

    rank: int

    def average(self, stop: bool, numbers: Array) -> tuple[bool, Array]:
        """Whether any rank wants to stop, and the mean of all ranks' numbers."""
        ...


class Alone:
    """A gang of one."""

    rank = 0

    def average(self, stop: bool, numbers: Array) -> tuple[bool, Array]:
        """Nobody else to ask."""
        return stop, numbers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Gang:
    """The connections of one rank: to every other on rank 0, to rank 0 elsewhere."""

    def __init__(self, rank: int, peers: list[socket.socket]) -> None:
        self.rank = rank
        self._peers = peers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.close()

    def average(self, stop: bool, numbers: Array) -> tuple[bool, Array]:
        """One exchange; raises PeerLost."""
        if self.rank:
            _send(self._peers[0], bytes([stop]) + numbers.tobytes())
            return _unpack(_receive(self._peers[0]), numbers.shape)
        total = numbers.copy()
        for peer in self._peers:
            theirs, part = _unpack(_receive(peer), numbers.shape)
            stop = stop or theirs
            total += part
        total /= len(self._peers) + 1
        answer = bytes([stop]) + total.tobytes()
        for peer in self._peers:
            _send(peer, answer)
        return stop, total


def join(step: int) -> Alone | Gang:
    """Meet the other ranks, as the environment names them; raises PeerLost when they do not all
    come in time, or do not all stand at ``step``."""
    nodes = int(os.environ.get("NNODES", "1"))
    if nodes == 1:
        return Alone()
    rank = int(os.environ["NODE_RANK"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    greeting = {"run": os.environ.get("HYBRID_RUN_ID", ""), "step": step, "nodes": nodes}
    if rank == 0:
        return Gang(0, _gather(address, nodes, greeting))
    return Gang(rank, [_reach(address, rank, greeting)])


def _gather(address: tuple[str, int], nodes: int, own: dict[str, object]) -> list[socket.socket]:
    end_s = time.monotonic() + RENDEZVOUS_S
    peers: dict[int, socket.socket] = {}
    with socket.create_server(address) as server:
        while len(peers) < nodes - 1:
            server.settimeout(max(0.01, end_s - time.monotonic()))
            try:
                peer, _ = server.accept()
            except TimeoutError:
                raise PeerLost(f"{nodes - 1 - len(peers)} ranks did not come") from None
            peer.settimeout(STEP_S)
            rank = _greeted(peer, nodes, own)
            if rank is None:
                peer.close()
            else:
                peers[rank] = peer
    ordered = [peers[rank] for rank in sorted(peers)]
    for peer in ordered:
        _send(peer, b"go")
    return ordered


def _greeted(peer: socket.socket, nodes: int, own: dict[str, object]) -> int | None:
    """The rank of a caller of our gang; None for a stranger. Raises PeerLost for a rank that
    resumed from another step."""
    try:
        greeting = json.loads(_receive(peer, limit_bytes=4096))
        rank = int(greeting["rank"])
        run = str(greeting["run"])
        step = int(greeting["step"])
    except (PeerLost, ValueError, KeyError, TypeError):
        return None
    if not (0 < rank < nodes and hmac.compare_digest(run, str(own["run"]))):
        return None
    if step != own["step"]:
        raise PeerLost(f"rank {rank} stands at step {step}, rank 0 at {own['step']}")
    return rank


def _reach(address: tuple[str, int], rank: int, own: dict[str, object]) -> socket.socket:
    end_s = time.monotonic() + RENDEZVOUS_S
    while True:
        try:
            master = socket.create_connection(address, timeout=5.0)
            break
        except OSError as error:
            if time.monotonic() > end_s:
                raise PeerLost(f"rank 0 does not listen: {error}") from error
            time.sleep(0.05)
    # Rank 0 answers only when all have come.
    master.settimeout(RENDEZVOUS_S + 5.0)
    _send(master, json.dumps({**own, "rank": rank}).encode())
    if _receive(master, limit_bytes=16) != b"go":
        raise PeerLost("rank 0 speaks another language")
    master.settimeout(STEP_S)
    return master


def _unpack(message: bytes, shape: tuple[int, ...]) -> tuple[bool, Array]:
    numbers = np.frombuffer(message, dtype=np.float64, offset=1)
    if numbers.size != int(np.prod(shape)):
        raise PeerLost(f"{numbers.size} numbers came instead of {shape}")
    return bool(message[0]), numbers.reshape(shape).copy()


def _send(peer: socket.socket, message: bytes) -> None:
    try:
        peer.sendall(_LENGTH.pack(len(message)) + message)
    except OSError as error:
        raise PeerLost(f"cannot send: {error}") from error


def _receive(peer: socket.socket, limit_bytes: int = _MAX_MESSAGE_BYTES) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(peer, _LENGTH.size))
    if length > limit_bytes:
        raise PeerLost(f"a message of {length} bytes")
    return _exactly(peer, length)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            piece = peer.recv(min(size - len(data), 1 << 20))
        except OSError as error:
            raise PeerLost(f"no answer: {error}") from error
        if not piece:
            raise PeerLost("a rank has gone")
        data += piece
    return bytes(data)
