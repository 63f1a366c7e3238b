"""How cost grows: idle consumers, replicated partitions. The product is measured, by its processes.

Owns what is printed of a slope. Nothing in here may measure a stand-in of a node.
"""
