"""The package of the same name in `testcontainers`, from version 4.15 on."""
