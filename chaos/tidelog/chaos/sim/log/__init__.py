"""The play of the suite `log`: a node that is nothing but its data directories, and its clients."""
