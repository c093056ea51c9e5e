"""The log of the service, on stderr."""

import logging


def configure_logging(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)-7s %(name)s  %(message)s", force=True)
    for noisy in ("py4j", "uvicorn.access", "pyiceberg", "botocore", "boto3", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # PySpark's own report of every refused query, whole, as JSON.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
