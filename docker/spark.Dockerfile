# A Spark job on the flights data, against the broker of compose.yaml. Java comes with the demo
# extra, so that the base image is plain Python.
FROM python:3.13-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE NOTICE ./
COPY broker broker
COPY client client
COPY protocol protocol
COPY spark_connector spark_connector
COPY records records
COPY testkit testkit
COPY command_line command_line
COPY console console
COPY mirror mirror
COPY log_tools log_tools
COPY odradek odradek
COPY demo demo
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && python -m zipfile -l /wheels/*.whl | grep -q _native.abi3.so

FROM python:3.13-slim
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir -c /tmp/constraints.txt "$(echo /wheels/*.whl)[demo]" \
    && rm -rf /wheels /tmp/constraints.txt \
    && odradek --version | grep -q "record codec: compiled" \
    && useradd --system --uid 10001 --create-home spark
USER 10001
WORKDIR /home/spark
CMD ["sh", "-c", "exec odradek demo --bootstrap \"$ODRADEK_BOOTSTRAP\""]
