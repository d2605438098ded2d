"""Commands about a broker of this machine."""
