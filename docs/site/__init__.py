"""The documents as a site that can be searched (`python -m docs.site`)."""
