"""The pictures and diagrams of the documents, made by `python -m docs.drawings`."""
