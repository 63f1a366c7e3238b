"""Ports for nodes that tests start: those of the live runs, which draw a share for each worker."""

from tidelog.chaos.live.processes.ports import free_port, free_ports

__all__ = ["free_port", "free_ports"]
