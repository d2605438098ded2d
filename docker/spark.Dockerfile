# A Spark job on the flights data, against the broker of compose.yaml. Java comes with the demo
# extra, so that the base image is plain Python.
FROM python:3.13-slim
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE constraints.txt ./
COPY broker broker
COPY client client
COPY protocol protocol
COPY spark_connector spark_connector
RUN pip install --no-cache-dir -c constraints.txt '.[demo]' \
    && useradd --system --uid 10001 --create-home spark
USER 10001
CMD ["sh", "-c", "exec odradek demo --bootstrap \"$ODRADEK_BOOTSTRAP\""]
