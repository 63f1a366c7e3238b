"""A queue: workers of one group, each job done by one of them.

Add workers, here or on other machines, and partitions move to them; each has one worker at most.
`tidelog dev` in one terminal, `python examples/work_queue.py` in another.
"""

import threading

from tidelog.client import AdminClient, Consumer, NewTopic, Producer
from tidelog.client.errors import WakeupError

TOPIC = "thumbnails"
JOBS = 200
WORKERS = 3


class Pool:
    """Workers, what they did, and the end when all of it is done."""

    def __init__(self) -> None:
        self.done: list[bytes] = []
        self.workers = [
            Consumer(TOPIC, group_id="renderers", auto_offset_reset="earliest")
            for _ in range(WORKERS)
        ]

    def work(self, worker: Consumer) -> None:
        """Until all jobs are done; leaving the group commits what was read."""
        with worker:
            try:
                for record in worker:
                    self.done.append(record.value)
                    if len(self.done) == JOBS:
                        for each in self.workers:
                            each.wakeup()
            except WakeupError:
                return


def main() -> None:
    """Hand out jobs, let the workers do them."""
    with AdminClient() as admin:
        admin.try_create_topics([NewTopic(TOPIC, num_partitions=6)])
    with Producer() as producer:
        for number in range(JOBS):
            producer.send(TOPIC, b"%d" % number, key=b"%d" % number)
    pool = Pool()
    threads = [threading.Thread(target=pool.work, args=(each,)) for each in pool.workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{len(pool.done)} jobs done, {len(set(pool.done))} different ones")


if __name__ == "__main__":
    main()
