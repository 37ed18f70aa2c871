"""The program's version, in one place: the build reads it here, and so does the User-Agent."""

__version__ = "0.1.0"
