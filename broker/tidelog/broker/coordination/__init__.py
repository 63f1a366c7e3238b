"""What coordinators of any kind stand on: where they are, their logs, their tasks' lives.

A kind of coordinator (of groups, of transactions) has an internal topic; whoever leads a partition
of it coordinates the names that belong there, in a pure core that is made of the partition's
records. This room knows no core's messages.
"""
