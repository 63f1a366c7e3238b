"""Many records in one call, as lists or as Arrow tables: what both drivers share of it.

Owns how a caller's columns become runs of records, and stored batches Arrow columns. It must never
import a driver, and pyarrow only where a call is made that names Arrow.
"""
