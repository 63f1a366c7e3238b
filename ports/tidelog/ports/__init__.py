"""The seams: everything that a node does to the world outside its process goes through a port.

Protocols, and the types that they speak in. `tidelog.ports.real` holds the adapters of a real
node, `tidelog.chaos.sim` the simulated ones; both pass the same contract tests. Nothing here
imports gRPC, and nothing above here touches a clock, randomness, a file or a socket by itself.
"""

from tidelog.ports.answer_room import AnswerRoom
from tidelog.ports.authorizer import AllowAll, Authorizer
from tidelog.ports.certificates import (
    CertificateNames,
    CertificateNews,
    Certificates,
    NoCertificates,
)
from tidelog.ports.clock import Clock
from tidelog.ports.disk import (
    Append,
    DirectoryGone,
    Disk,
    File,
    FileUnusable,
    directory_gone,
    gone,
    unusable,
)
from tidelog.ports.host import Host
from tidelog.ports.network import (
    MESSAGE_BYTES_MAX,
    DeathHint,
    Listener,
    ListenerLimits,
    ListenerUsage,
    Method,
    Network,
    PeerUnreachable,
    Server,
    Stream,
    StreamHandler,
    StreamMethod,
    TlsFiles,
    UnaryHandler,
    UnaryMethod,
    WatchedServer,
)
from tidelog.ports.pages import Page, PageHandler, PageRequest, Pages
from tidelog.ports.random import Random
from tidelog.ports.request_context import RequestContext
from tidelog.ports.request_room import RequestRoom
from tidelog.ports.task_scope import TaskScope
from tidelog.ports.worker import Job, JobFiles, Worker

__all__ = [
    "MESSAGE_BYTES_MAX",
    "AllowAll",
    "AnswerRoom",
    "Append",
    "Authorizer",
    "CertificateNames",
    "CertificateNews",
    "Certificates",
    "Clock",
    "DeathHint",
    "DirectoryGone",
    "Disk",
    "File",
    "FileUnusable",
    "Host",
    "Job",
    "JobFiles",
    "Listener",
    "ListenerLimits",
    "ListenerUsage",
    "Method",
    "Network",
    "NoCertificates",
    "Page",
    "PageHandler",
    "PageRequest",
    "Pages",
    "PeerUnreachable",
    "Random",
    "RequestContext",
    "RequestRoom",
    "Server",
    "Stream",
    "StreamHandler",
    "StreamMethod",
    "TaskScope",
    "TlsFiles",
    "UnaryHandler",
    "UnaryMethod",
    "WatchedServer",
    "Worker",
    "directory_gone",
    "gone",
    "unusable",
]
