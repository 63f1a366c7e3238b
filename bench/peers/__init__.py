"""Systems that Tidelog stands beside in one run: how each is started, driven and stopped."""
