"""dibs: agents that share a codebase call dibs before they touch something, and one wins."""

__version__ = "0.2.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.aio import AsyncAgent, AsyncDibs
    from dibs.dibs import Agent, Dibs, open
    from dibs.errors import *
    from dibs.records import *

__all__ = [
    "Agent",
    "AllDoneError",
    "AsyncAgent",
    "AsyncDibs",
    "Attention",
    "Availability",
    "Blocker",
    "Bundle",
    "BusyError",
    "CancelledError",
    "Change",
    "ClosedError",
    "ConflictError",
    "Contention",
    "CorruptError",
    "DeadlockError",
    "Delivery",
    "Dibs",
    "DibsError",
    "Difference",
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
    "Moment",
    "NewToken",
    "NotFoundError",
    "NotYoursError",
    "NothingFitsError",
    "Outcome",
    "Overview",
    "Pair",
    "PlannedTask",
    "Presence",
    "Pruned",
    "PrunedError",
    "ReadOnlyError",
    "RefusedError",
    "Report",
    "Saving",
    "Seal",
    "Sealed",
    "Session",
    "SpaceFullError",
    "StaleError",
    "StateError",
    "StorageError",
    "StoreGoneError",
    "Stuck",
    "Tally",
    "Task",
    "TimeoutError",
    "Token",
    "UnavailableError",
    "UnfitError",
    "UpgradedError",
    "Waiter",
    "Waits",
    "WorkPlan",
    "open",
]


def __getattr__(name: str) -> object:
    """Import a name when it is first used: a command needs only a few, and starts faster."""
    if name in __all__:
        for home in ("records", "errors", "dibs", "aio"):
            module = __import__(f"dibs.{home}", fromlist=[name])
            if name in vars(module):
                globals()[name] = vars(module)[name]
                return globals()[name]
    raise AttributeError(f"module 'dibs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
