"""What a batch read reads: from a start to an end that are both resolved when it is planned.

Both are of one view of the cluster, so that no range begins in one topic and ends in another.
"""

from tidelog.spark.cluster import Cluster, check_named
from tidelog.spark.losses import LOGGER, report
from tidelog.spark.options import SourceOptions
from tidelog.spark.planning import OffsetRange, plan_ranges, split_ranges


def plan_batch(options: SourceOptions) -> list[OffsetRange]:
    """Its tasks; none if there is nothing to read."""
    if options.starting.word == "latest":
        LOGGER.warning("a batch read with startingOffsets=latest begins at its end: it is empty")
    with Cluster(options) as cluster:
        view = cluster.look()
        check_named(view)
        start, lost = cluster.resolve(view, options.starting, "startingOffsets")
        end, lost_too = cluster.resolve(view, options.ending, "endingOffsets")
    report([*lost, *lost_too], fail_on_data_loss=options.fail_on_data_loss)
    return split_ranges(plan_ranges(start, end, view.version), options.min_partitions)
