"""Consumers of one group share the partitions of a topic; who leaves gives its share to the others.

`tidelog dev` in one terminal, `python examples/groups.py` in another.
"""

from tidelog.client import AdminClient, Consumer, NewTopic

TOPIC = "rides"
PARTITIONS = 4


def member() -> Consumer:
    """One more consumer of the group."""
    return Consumer(TOPIC, group_id="dispatch", auto_offset_reset="earliest")


def wait_shared(members: list[Consumer]) -> None:
    """Poll until everybody has an equal share: a member that does not poll is soon none."""
    share = PARTITIONS // len(members)
    while any(len(each.assignment()) != share for each in members):
        for each in members:
            each.poll(timeout_ms=50)


def show(what: str, members: list[Consumer]) -> None:
    """Who reads what."""
    shares = [sorted(partition for _, partition in each.assignment()) for each in members]
    everything = sorted(partition for share in shares for partition in share)
    print(f"{what}: {[len(share) for share in shares]} partitions, in all {everything}")


def main() -> None:
    """One member, then two, then one again."""
    with AdminClient() as admin:
        admin.try_create_topics([NewTopic(TOPIC, PARTITIONS)])
    with member() as first:
        wait_shared([first])
        show("alone", [first])
        with member() as second:
            wait_shared([first, second])
            show("together", [first, second])
        wait_shared([first])
        show("alone again", [first])


if __name__ == "__main__":
    main()
