# Bookworm is the Debian that has both an image for this Python and Java 17.
FROM python:3.11-slim-bookworm AS base
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
ENV PYTHONUNBUFFERED=1 \
    FIRN_CACHE=/opt/firn/jars
WORKDIR /opt/firn

FROM base AS build
COPY requirements-build.lock requirements.lock ./
# PySpark comes as source: it is built with the locked setuptools.
RUN python -m venv .venv \
    && .venv/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock \
    && .venv/bin/pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements.lock
# Only what fetching needs, so that a change of the service does not invalidate this layer.
COPY config/jars.lock config/
COPY service/__init__.py service/__main__.py service/
COPY service/settings/ service/settings/
COPY service/host/__init__.py service/host/process_locks.py service/host/jars.py service/host/preflight.py service/host/presence.py service/host/exposure.py service/host/
COPY service/cli service/cli/
RUN .venv/bin/python -m service jars --fetch-only

FROM base
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin firn \
    && install --directory --owner=firn --group=firn /data
COPY --from=build /opt/firn/.venv .venv
COPY --from=build /opt/firn/jars jars
COPY config config
COPY docs docs
COPY service service
COPY handlers handlers
# The last installation step, because Java uses the class archive only if no jar has changed since.
RUN .venv/bin/python -m compileall -q service handlers \
    && .venv/bin/python -m service jars
ENV FIRN_ENV=production \
    FIRN_HOST=0.0.0.0 \
    FIRN_PORT=8080 \
    FIRN_HOME=/data
USER firn
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["/opt/firn/.venv/bin/python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['FIRN_PORT'] + '/health', timeout=2)"]
CMD ["/opt/firn/.venv/bin/python", "-m", "service", "serve"]
