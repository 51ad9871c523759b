# The command `agent-runtime`.  See docs/how-to/install.md.
FROM python:3.13-slim AS build
RUN pip install --no-cache-dir uv
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY agent_runtime agent_runtime
COPY storage storage
COPY config config
ARG EXTRAS=server,workers
RUN uv venv /opt/agent-runtime && uv pip install --no-cache --python /opt/agent-runtime ".[$EXTRAS]"

FROM python:3.13-slim
RUN useradd --create-home --uid 10001 agent && mkdir /work /state && chown agent:agent /work /state
COPY --from=build /opt/agent-runtime /opt/agent-runtime
ENV PATH=/opt/agent-runtime/bin:$PATH XDG_STATE_HOME=/state PYTHONUNBUFFERED=1
USER agent
WORKDIR /work
VOLUME ["/state"]
ENTRYPOINT ["agent-runtime"]
CMD ["--help"]
