"""Every exception rueda raises on purpose, and how a status of the C ABI becomes one of them."""

from __future__ import annotations

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."
AWAITS_VIEW = (
    "This process is to join an elastic job and is not a member yet: collectives work in the function that "
    "hvd.elastic.run calls, so move those that the script does before into it."
)
SHUTTING_DOWN = "Horovod is shutting down."
FORKED = (
    "This process was forked from one that had initialized rueda, and the engine does not survive a fork; "
    'start processes that use collectives with the "spawn" method.'
)
INIT_FAILED = (
    "Horovod initialization failed. Please check log messages above for a more descriptive error. {cause}"
)


class HorovodInternalError(RuntimeError):
    """A collective failed although its arguments were acceptable on this rank.

    Ranks disagreed, a peer was lost, another rank ended the job, or the engine could not go on. Elastic jobs
    restore their last committed state and continue. The first argument is the underlying `RuntimeError`;
    `str` is its text.
    """


class RuedaError(RuntimeError):
    """The engine could not do what it was asked; the text is one sentence."""


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of an elastic job changed; `skip_sync`: the state need not be sent again."""

    leave = False  # whether this process leaves the job

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """The sentence about a framework other than the one something was built for."""
    return (
        f"Framework {name} installed with version {installed_version} but found version {version}; "
        f"reinstall or use {name} {installed_version}."
    )


class HorovodVersionMismatchError(ImportError):
    """Kept for code that catches it: rueda is not tied to a framework's build and never raises it."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


def missing_attribute(module: str, name: str) -> AttributeError:
    """What a front end raises for an attribute that it does not have."""
    return AttributeError(f"module {module!r} has no attribute {name!r}")


def internal_error(text: str) -> HorovodInternalError:
    """The exception of a failed collective."""
    return HorovodInternalError(RuntimeError(text))
