module orders

go 1.21

require github.com/twmb/franz-go v1.19.5
