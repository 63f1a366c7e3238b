"""The settings of clusters, brokers, topics and groups: names, kinds, values in force."""
