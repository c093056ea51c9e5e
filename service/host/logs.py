"""The log of the service, on stderr."""

import logging

from service.settings import Settings


def configure_logging(settings: Settings) -> None:
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s  %(message)s", force=True
    )
    for noisy in ("py4j", "uvicorn.access", "pyiceberg", "botocore", "boto3", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # PySpark's own report of every refused query, whole, as JSON.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
