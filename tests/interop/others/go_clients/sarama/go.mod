module sarama

go 1.24
