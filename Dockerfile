# One image for every process: the services, the agent, `steer`, and the nats-server of the lock file.
FROM python:3.11-slim AS build
WORKDIR /app
COPY requirements.lock ./
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY shared shared
COPY services services
COPY examples examples
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation -e .

FROM python:3.11-slim
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN install -d -o 10001 -g 10001 /data /edge
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
USER 10001:10001
CMD ["steer", "--help"]
