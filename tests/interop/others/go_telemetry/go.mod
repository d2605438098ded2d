module telemetry

go 1.21
