"""Messages and checks that leader and follower share. Pure."""
