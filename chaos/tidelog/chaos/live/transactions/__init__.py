"""Transactions of real processes while brokers, paths and the processes themselves fail.

Two workloads, each judged by what its readers with read_committed were handed:

bank       movers transfer money between the partitions of a topic, each transfer one transaction of
           which the legs add up to zero; auditors read all partitions all the while. Every read
           adds up, whatever has died
pipeline   a feeder writes; three stages, a group of workers each, consume, fold and produce in one
           transaction that commits their offsets and their state. The end of the pipeline is the
           fold of its beginning, each record once

Every client is a process of its own that writes down what it does *before* it does it, so that the
history of one that was killed is whole as far as it came. They are killed, and some are stopped
while another process takes their transactional id over, and go on as zombies then.
"""
