module kadm

go 1.25
