"""The daily settlement of a payment processor's account: exact, complete, exactly once, explained.

The names below are the public ones, for those who script; everything else may change.
"""

from paykit_settle.client import ProcessorClient
from paykit_settle.errors import SettleError
from paykit_settle.models import BalanceTransaction, PostedSettlement, Settlement, SettlementLine
from paykit_settle.money import ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.run import RunOptions, build_settlement, run_settlement
from paykit_settle.service import create_app
from paykit_settle.version import __version__

__all__ = [
    "BalanceTransaction",
    "PostedSettlement",
    "ProcessorClient",
    "Rates",
    "RunOptions",
    "ScaleProfile",
    "SettleError",
    "Settlement",
    "SettlementLine",
    "__version__",
    "build_settlement",
    "create_app",
    "run_settlement",
]
