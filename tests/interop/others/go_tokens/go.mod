module tokens

go 1.25
