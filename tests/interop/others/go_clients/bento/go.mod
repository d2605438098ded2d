module bento

go 1.24
