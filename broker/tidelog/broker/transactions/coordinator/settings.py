"""What operators have set for transactions, as the coordinators' cores take it. Pure."""

from tidelog.broker.transactions.state.messages import (
    TransactionSettings,
    TransactionSettingsChanged,
)
from tidelog.metadata.image.image import Image
from tidelog.metadata.settings.of_transactions import read_transaction_settings


def settings_of(image: Image) -> TransactionSettingsChanged:
    """For all transactional ids."""
    times = read_transaction_settings(dict(image.cluster_configuration))
    return TransactionSettingsChanged(
        settings=TransactionSettings(
            timeout_ms_max=times.timeout_ms_max, id_expiration_ms=times.id_expiration_ms
        )
    )
