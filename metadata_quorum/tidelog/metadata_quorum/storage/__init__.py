"""What a member of the quorum keeps on its disk: identity, journal, marks, snapshots.

`quorum_storage.open_storage` is the way in, `identity.format_storage` makes a directory.
"""
