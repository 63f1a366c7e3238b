"""The asyncio clients: the same engines as the synchronous ones, driven on the user's loop.

Owns the driver on grpc.aio. A client belongs to the loop on which it is first used; nobody else of
the SDK imports this package, so that synchronous programs never start grpc.aio.
"""

from tidelog.client.aio.admin.client import AsyncAdminClient
from tidelog.client.aio.batch_future import AsyncSendBatchFuture
from tidelog.client.aio.consumer import AsyncConsumer
from tidelog.client.aio.producer import AsyncProducer
from tidelog.client.aio.retry import AsyncRecordHandler
from tidelog.client.aio.send_future import AsyncSendFuture
from tidelog.client.aio.table import AsyncTable
from tidelog.client.aio.transaction import AsyncTransaction

__all__ = [
    "AsyncAdminClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncRecordHandler",
    "AsyncSendBatchFuture",
    "AsyncSendFuture",
    "AsyncTable",
    "AsyncTransaction",
]
