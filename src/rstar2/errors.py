"""The errors a user can mend; the command line prints them as one line, without a traceback."""


class UserError(Exception):
    """Something the user gave or the machine lacks; the message says what, where and what to do.

    Rooms derive their own (``RecordError`` …). ``rstar2`` prints the message on stderr and
    exits with code 2. Anything else that is raised is a defect and keeps its traceback.
    """
