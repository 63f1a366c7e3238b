"""The worker's process: reads jobs from standard input, runs each, answers on standard output.

Started as `python -m tidelog.ports.real.worker_process`. It ends with its node: the end of
standard input, which the system closes with the node's process, ends it even in the middle of a
job. It must never print on the answers' pipe, so that is moved away before any job runs.
"""

import importlib
import os
import queue
import sys
import threading
import traceback
from typing import BinaryIO, Final

import msgspec

LENGTH_BYTES: Final = 8
JOB_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of a job's arguments and of its result."""
NICENESS: Final = 10
"""Background work gives way to the node."""


class Job(msgspec.Struct, frozen=True, array_like=True):
    """What to run."""

    name: str
    arguments: bytes


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What became of it; `failure` is empty if it ended well."""

    result: bytes
    failure: str


_job_decoder: Final = msgspec.msgpack.Decoder(Job)


def frame(message: Job | Outcome) -> bytes:
    """A message with its length in front."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def main() -> None:
    """Run jobs until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.nice(NICENESS)
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        answers.write(frame(run_job(jobs.get())))
        answers.flush()


def run_job(job: Job) -> Outcome:
    """Import the named function, call it, and keep what it raises as text."""
    try:
        module, _, function = job.name.partition(":")
        result = getattr(importlib.import_module(module), function)(job.arguments)
        if not isinstance(result, bytes):
            return Outcome(b"", f"it returned {type(result).__name__}, not bytes")
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return Outcome(b"", f"{type(error).__name__}: {error}")
    return Outcome(result, "")


def _read_jobs(pipe: BinaryIO, jobs: "queue.SimpleQueue[Job]") -> None:
    while len(prefix := pipe.read(LENGTH_BYTES)) == LENGTH_BYTES:
        jobs.put(_job_decoder.decode(pipe.read(int.from_bytes(prefix, "big"))))
    # The node is gone, and nobody takes the answer of a job in progress.
    os._exit(0)


if __name__ == "__main__":
    main()
