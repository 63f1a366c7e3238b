"""Topics as Spark data frames: `spark.read` and `spark.readStream.format("tidelog")`.

Installed on every node of a Spark cluster, the format registers itself (through the module
`pyspark_tidelog`); in a session that was started before, `spark.dataSource.register` does it.
The room decides what to read and turns batches into Arrow; all talking is done by the SDK.
"""
