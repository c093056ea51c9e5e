"""Addresses of PostgreSQL databases, as each library wants them; the settings have checked how they are written."""

from urllib.parse import quote, unquote, urlsplit

# Nobody waits longer for the server, whether it is busy or out of reach: seconds for libpq, milliseconds for the rest.
_LIMITS = {
    "connect_timeout": "5",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "options": "-c statement_timeout=30000 -c lock_timeout=30000",
}
_JDBC_LIMITS = {"jdbc.connectTimeout": "5", "jdbc.socketTimeout": "30", "jdbc.tcpKeepAlive": "true"}


def libpq(url: str) -> str:
    """The address for psycopg, with limits to how long anything may take."""
    limits = "&".join(f"{name}={quote(value)}" for name, value in _LIMITS.items())
    return f"{url}{'&' if '?' in url else '?'}{limits}"


def sqlalchemy(url: str) -> str:
    """The same for SQLAlchemy, which is to use psycopg 3."""
    return libpq(url).replace("postgresql://", "postgresql+psycopg://", 1)


def jdbc(url: str) -> dict[str, str]:
    """The properties of Iceberg's JDBC catalog: the address without, and beside it, who we are."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    properties = {"uri": f"jdbc:postgresql://{place}{parts.path}{'?' if parts.query else ''}{parts.query}"}
    if parts.username is not None:
        properties["jdbc.user"] = unquote(parts.username)
    if parts.password is not None:
        properties["jdbc.password"] = unquote(parts.password)
    return {**properties, **_JDBC_LIMITS, "jdbc.schema-version": "V1"}
