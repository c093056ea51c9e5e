"""The URL of a PostgreSQL database in the form that each library needs; the settings have validated it."""

from urllib.parse import quote, unquote, urlsplit

# The longest waits for a busy or unreachable server: in seconds for libpq's own, in milliseconds for the others.
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
    """The URL for psycopg, with time limits."""
    limits = "&".join(f"{name}={quote(value)}" for name, value in _LIMITS.items())
    return f"{url}{'&' if '?' in url else '?'}{limits}"


def sqlalchemy(url: str) -> str:
    """The URL for SQLAlchemy with psycopg 3."""
    return libpq(url).replace("postgresql://", "postgresql+psycopg://", 1)


def jdbc(url: str) -> dict[str, str]:
    """The properties of Iceberg's JDBC catalog, with user and password outside of the URL."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    properties = {"uri": f"jdbc:postgresql://{host}{parts.path}{'?' if parts.query else ''}{parts.query}"}
    if parts.username is not None:
        properties["jdbc.user"] = unquote(parts.username)
    if parts.password is not None:
        properties["jdbc.password"] = unquote(parts.password)
    return {**properties, **_JDBC_LIMITS, "jdbc.schema-version": "V1"}
