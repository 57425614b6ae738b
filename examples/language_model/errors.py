"""Errors of the program's user."""


class UserError(Exception):
    """A mistake that the user can correct; printed as one line."""
