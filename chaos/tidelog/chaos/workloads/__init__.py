"""Clients that drive a cluster through its contract and write down what they saw."""

from tidelog.chaos.workloads.log_client import LogClient, Topic, WorkloadPorts

__all__ = ["LogClient", "Topic", "WorkloadPorts"]
