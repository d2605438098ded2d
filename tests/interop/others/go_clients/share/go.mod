module share

go 1.26
