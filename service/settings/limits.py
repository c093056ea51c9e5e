"""The settings about what requests may use."""

from typing import Annotated

from pydantic import Field

from service.settings.kinds import Count, Megabytes, SettingsSection, Threads


class LimitSettings(SettingsSection):
    """What requests may use, all together and each tenant's."""

    # How much of each limit that requests share one tenant may use, in percent. Below 100 it leaves at least one place
    # of several, such as a thread, to others.
    tenant_share: Annotated[int, Field(ge=1, le=100)] = 75
    body_mb: Annotated[int, Field(ge=1, le=2048)] = 64
    bulk_mb: Megabytes = 16_384
    # Each uses a Spark session while its rows are written.
    concurrent_bulk_loads: Annotated[int, Field(ge=1, le=64)] = 3
    # Estimated memory of all requests in progress; the bytes of JSON count eightfold.
    memory_mb: Annotated[int, Field(ge=64, le=1_000_000)] = 1024
    idempotency_key_retention_hours: Annotated[int, Field(ge=1, le=8760)] = 24
    # For requests that read metadata, and for requests that change only metadata. They need no Spark session.
    metadata_threads: Threads = 4
    table_threads: Threads = 8
    query_threads: Threads = 4
    # Most of them wait for the lock of their table.
    edit_threads: Threads = 16
    maintenance_threads: Threads = 1
    # Streamed responses (CSV or Arrow) at once, and how long a client may stop reading one.
    streams: Annotated[int, Field(ge=1, le=500)] = 16
    stream_idle_timeout_s: Annotated[int, Field(ge=1, le=86_400)] = 300
    # A JSON response that reads: a QUERY's rows beyond it are a next page. Lambda delivers 6 MB at most.
    response_bytes: Annotated[int, Field(ge=100_000, le=1_000_000_000)] = 6_000_000
    # Connections at once, from all clients; how long a client may take to send the head of a request, or to go on with
    # its body, and how many bytes of a body it must send, and of a response read, in each second after that.
    connections: Count = 2000
    client_timeout_s: Annotated[int, Field(ge=1, le=3600)] = 30
    client_bytes_per_s: Count = 1000
    # Requests that wait or run: those that need a thread, and those of each kind, WRITEs included.
    pending_requests: Count = 1000
    pending_queries: Count = 500
    pending_writes: Count = 10_000
    pending_maintenance: Count = 100
    # How long a QUERY or another read of rows may take if its request does not say, and the most a request may say.
    query_timeout_s: Annotated[int, Field(ge=1, le=86_400)] = 60
    max_timeout_s: Annotated[int, Field(ge=1, le=86_400)] = 3600
    # `/ready` says `stalled` once requests have waited so long for a Spark session and none became free.
    stalled_after_s: Annotated[int, Field(ge=1, le=3600)] = 15
    start_timeout_s: Annotated[int, Field(ge=1, le=3600)] = 120
    stop_timeout_s: Annotated[int, Field(ge=1, le=21)] = 20
