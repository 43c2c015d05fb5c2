"""dibs: agents that share a codebase call dibs before they touch something, and one wins."""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.dibs import Agent, Dibs, open
    from dibs.errors import *
    from dibs.records import *

__all__ = [
    "Agent",
    "AllDoneError",
    "Attention",
    "Availability",
    "Blocker",
    "Bundle",
    "BusyError",
    "CancelledError",
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "DeadlockError",
    "Delivery",
    "Dibs",
    "DibsError",
    "DisconnectedError",
    "DiskFullError",
    "EmptyError",
    "Entry",
    "EntryExport",
    "Event",
    "ExistsError",
    "ForkedError",
    "Grant",
    "HeldError",
    "InvalidError",
    "LaterError",
    "Lease",
    "Load",
    "Message",
    "Mismatch",
    "NewToken",
    "NotFoundError",
    "NotYoursError",
    "NothingFitsError",
    "Outcome",
    "Overview",
    "PlannedTask",
    "Presence",
    "Pruned",
    "PrunedError",
    "ReadOnlyError",
    "RefusedError",
    "Session",
    "SpaceFullError",
    "StaleError",
    "StateError",
    "StorageError",
    "StoreGoneError",
    "Stuck",
    "Task",
    "TimeoutError",
    "Token",
    "UnavailableError",
    "UnfitError",
    "UpgradedError",
    "WorkPlan",
    "open",
]


def __getattr__(name: str) -> object:
    """Import what is asked for only then: a command needs a few of these, and starts sooner."""
    if name in __all__:
        for home in ("records", "errors", "dibs"):
            module = __import__(f"dibs.{home}", fromlist=[name])
            if name in vars(module):
                globals()[name] = vars(module)[name]
                return globals()[name]
    raise AttributeError(f"module 'dibs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
