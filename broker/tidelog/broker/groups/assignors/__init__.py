"""How partitions are divided among members: pure functions, one a file.

They get what members want, how many partitions there are and who should have had what until now;
they give each partition of a subscribed topic to exactly one member that subscribes to it. Equal
input gives equal output, on any machine: no set is iterated.
"""
