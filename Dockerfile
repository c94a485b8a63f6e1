# Two images: one for the controller, the agents and the clients, and one for agents alone.
#
#   docker build -t etloop .                                  compiles a wheel inside (a few minutes)
#   docker build -t etloop-agent --target agent .             one for an agent alone, of 110 MB
#   docker build -t etloop --build-arg WHEELS=given .         takes the wheels of dist/, made outside by
#                                                             `pip download --require-hashes --requirement locks/run.lock --dest dist`
#                                                             and `pip wheel --no-deps --wheel-dir dist .`
#   docker build -t etloop --build-arg BASE=debian-with-python3-and-venv .
#
# Stages of their own leave compilers, pip and sources behind; what remains is Python and one virtual environment.
# Everything of others comes by its hash from locks/.

ARG BASE=docker.io/library/python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b
ARG WHEELS=built

FROM ${BASE} AS built
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY locks/ locks/
RUN python3 -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --require-hashes --requirement locks/build.lock
COPY . .
RUN /venv/bin/pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir /wheels . \
 && /venv/bin/pip download --no-cache-dir --require-hashes --requirement locks/run.lock --dest /wheels

FROM ${BASE} AS given
COPY dist/ /wheels/

FROM ${WHEELS} AS wheels

FROM ${BASE} AS installed
COPY --from=wheels /wheels/ /wheels/
COPY locks/ /locks/
RUN python3 -m venv /opt/etloop \
 && /opt/etloop/bin/pip install --no-cache-dir --no-index --find-links /wheels --require-hashes --requirement /locks/run.lock \
 && /opt/etloop/bin/pip install --no-cache-dir --no-index --no-deps /wheels/etloop-*.whl \
 && /opt/etloop/bin/pip uninstall --yes pip setuptools

# An agent alone: Python, its libraries and what `etloop-agent` imports, without a shell or a package manager. BASE has to be
# Debian bookworm with Python 3.11 here, whose packages the tool unpacks.
FROM ${BASE} AS agent-root
COPY --from=wheels /wheels/ /wheels/
COPY locks/ /src/locks/
COPY tools/make_agent_root.py /src/tools/
RUN apt-get update \
 && python3 -m venv /venv \
 && /venv/bin/python /src/tools/make_agent_root.py /agent /wheels

FROM scratch AS agent
COPY --from=agent-root /agent/ /
ENV PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
CMD ["etloop-agent", "--help"]

FROM ${BASE}
# A user of its own, and directories that volumes take their owner from.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin etloop \
 && install --directory --owner etloop --group etloop --mode 0750 /rack /rack/keys /rack/state /rack/traces
COPY --from=installed /opt/etloop /opt/etloop
ENV PATH=/opt/etloop/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER etloop
WORKDIR /rack
CMD ["etloop", "--help"]
