"""The one error that the tool reports to its user."""


class UserError(Exception):
    """Something that the user can mend; its text is shown as it is, without a traceback."""
