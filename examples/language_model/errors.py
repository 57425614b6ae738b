"""Errors of the program's user."""


class UserError(Exception):
    """What the user can put right; printed as one line."""
