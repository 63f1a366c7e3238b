"""`python -m bench.peers.kafka.writer …`: one confluent-kafka producer under the live kill script.

Owns the translation between librdkafka and the journal: acks=all, sequences, the same linger as
Tidelog's producer there; every other setting is librdkafka's default.
"""

import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, Producer

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.live.cluster.journal import Journal
from tidelog.chaos.live.cluster.pace import run_until_told, tell
from tidelog.chaos.live.cluster.writer import FLUSH_SECONDS_MAX, LINGER_MS, parser


def main() -> int:
    """Until standard input ends."""
    arguments = parser().parse_args()
    journal = Journal(arguments.journal, arguments.partitions)
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "client.id": arguments.name,
            "acks": "all" if arguments.acks == "all" else "1",
            "enable.idempotence": arguments.acks == "all",
            "linger.ms": LINGER_MS,
            "log_level": 0,
        }
    )

    def when_done(partition: int, number: int) -> Callable[[Any, Any], None]:
        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                journal.end(partition, number, Outcome.ACKNOWLEDGED, message.offset())
                return
            print(f"{arguments.name}:{number} to {partition}: {error}", file=sys.stderr)
            journal.end(partition, number, Outcome.INDETERMINATE)

        return on_delivery

    def send(partition: int, number: int, value: bytes) -> None:
        try:
            producer.produce(
                arguments.topic,
                value,
                partition=partition,
                on_delivery=when_done(partition, number),
            )
        except (BufferError, KafkaException) as error:
            print(f"{arguments.name}:{number} not sent: {error}", file=sys.stderr)
            journal.end(partition, number, Outcome.FAILED)

    try:
        run_until_told(
            send,
            journal,
            name=arguments.name,
            partition_count=arguments.partitions,
            rate=arguments.rate,
            on_tick=lambda: producer.poll(0),
        )
        producer.flush(FLUSH_SECONDS_MAX)
    finally:
        tell(journal)
        journal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
