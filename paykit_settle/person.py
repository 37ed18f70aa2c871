"""Who does something: the operating system's user of this process, by which way, and what they call themselves."""

import os
import pwd
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody who decides. `remark` is what they say of themselves: beside the user's name, never in its place."""

    principal: str
    channel: str = "cli"
    remark: str | None = None

    @property
    def name(self) -> str:
        """The name that stands beside a decision."""
        return self.principal if self.remark is None else f"{self.remark} ({self.principal})"


def this_user() -> str:
    """Return the name of the user whose process this is; `uid 1000` for one without a name, as in many a container.

    Not what the environment says: anybody may set `LOGNAME`.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
