# One image for the controller, the agents and the clients.
#
#   docker build -t etloop .                                  compiles a wheel inside (a few minutes)
#   docker build -t etloop --build-arg WHEELS=given .         takes the wheels of dist/, made outside by
#                                                             `pip wheel --constraint constraints.txt --wheel-dir dist .`
#   docker build -t etloop --build-arg BASE=debian-with-python3-and-venv .
#
# Two stages of their own leave compilers, pip and sources behind; what remains is Python and one virtual environment.

ARG BASE=docker.io/library/python:3.11-slim-bookworm
ARG WHEELS=built

FROM ${BASE} AS built
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt ./
RUN python3 -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --constraint constraints.txt cmake nanobind ninja scikit-build-core
COPY . .
RUN /venv/bin/pip wheel --no-cache-dir --no-build-isolation --constraint constraints.txt --wheel-dir /wheels .

FROM ${BASE} AS given
COPY dist/ /wheels/

FROM ${WHEELS} AS wheels

FROM ${BASE} AS installed
COPY --from=wheels /wheels/ /wheels/
RUN python3 -m venv /opt/etloop \
 && /opt/etloop/bin/pip install --no-cache-dir --no-index --find-links /wheels etloop \
 && /opt/etloop/bin/pip uninstall --yes pip setuptools

FROM ${BASE}
# A user of its own, and directories that volumes take their owner from.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin etloop \
 && install --directory --owner etloop --group etloop --mode 0750 /rack /rack/keys /rack/state /rack/traces
COPY --from=installed /opt/etloop /opt/etloop
ENV PATH=/opt/etloop/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER etloop
WORKDIR /rack
CMD ["etloop", "--help"]
