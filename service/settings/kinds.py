"""The types of settings, and what the sections of the settings have in common."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Count = Annotated[int, Field(ge=1, le=1_000_000)]
FileCount = Annotated[int, Field(ge=2, le=1_000_000)]
Hours = Annotated[int, Field(ge=0, le=1_000_000)]
KeptHours = Annotated[int, Field(ge=1, le=1_000_000)]
# The ledger keeps changes for thirty days.
UndoHours = Annotated[int, Field(ge=0, le=720)]
Threads = Annotated[int, Field(ge=1, le=1000)]
Megabytes = Annotated[int, Field(ge=1, le=1_000_000)]
Mode = Literal["off", "recommend", "auto"]
Strategy = Literal["binpack", "sort", "zorder"]
RowLevel = Literal["auto", "copy_on_write", "merge_on_read"]
# When scheduled and automatic maintenance may start, with an IANA time zone: "01:00-05:30 Europe/Zurich".
WINDOW = r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d( [A-Za-z0-9_+/-]+)?$"
Window = Annotated[str, Field(pattern=WINDOW)]
# A heap, as Java writes it.
MEMORY = r"^[1-9][0-9]*[kmgKMG]$"
Codec = Literal["zstd", "snappy", "gzip", "uncompressed"]


class SettingsSection(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def as_list(value: Any) -> Any:
    """A variable holds a list as text, with commas."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _as_text(value: Any) -> Any:
    """The file may have a number, and a variable holds it as text."""
    return str(value) if isinstance(value, int) else value


Processes = Annotated[Literal["auto", "1", "2"], BeforeValidator(_as_text)]
