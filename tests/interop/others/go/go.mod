module sasl

go 1.21
