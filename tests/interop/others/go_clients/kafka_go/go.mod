module kafka_go

go 1.24
