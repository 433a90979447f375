"""Work folders of root on filesystems that cannot map owners: lent to the cells, who are somebody else, and taken back."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field

from ...sandbox.setup.chown import Owner, change_owner
from ...sandbox.setup.namespaces import OUTER_USERS


@dataclass
class _Loan:
    """Whose a folder was, as whom cells have it, and how many executors use it."""

    owner: Owner
    borrowers: set[int] = field(default_factory=set[int])
    uses: int = 0


_loans: dict[str, _Loan] = {}
_guard = threading.Lock()


class Use:
    """One executor's use of a work folder, from before that is opened: this may lend it, which is to be noted then."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._is_noted = False
        with _guard:
            if self._folder not in _loans:
                _loans[self._folder] = _Loan(_reclaimed(self._folder))
            self._loan = _loans[self._folder]
            self._loan.uses += 1

    def note(self) -> None:
        """Note who has got the folder: now, since another process may take it over later."""
        self._is_noted = True
        user, _ = _owner(self._folder)
        if user in OUTER_USERS:
            self._loan.borrowers.add(user)

    def end(self) -> None:
        """With the last use all that is the cells' in the folder is its owner's again."""
        if not self._is_noted:  # it was not opened for long
            self.note()
        with _guard:
            self._loan.uses -= 1
            if self._loan.uses:
                return
            del _loans[self._folder]
            for borrower in self._loan.borrowers:
                _take_back(self._folder, borrower, self._loan.owner)


def _reclaimed(folder: str) -> Owner:
    """Give whose `folder` is; ours, where one who was killed had lent it and not taken it back: then it is taken back."""
    user, group = _owner(folder)
    if user not in OUTER_USERS:
        return user, group
    ours = os.geteuid(), os.getegid()
    _take_back(folder, user, ours)
    return ours


def _owner(folder: str) -> Owner:
    try:
        status = os.stat(folder)
    except OSError:  # it is gone; whoever opens it says so
        return os.geteuid(), os.getegid()
    return status.st_uid, status.st_gid


def _take_back(folder: str, borrower: int, owner: Owner) -> None:
    with contextlib.suppress(OSError):  # it is gone
        change_owner(folder, (borrower, borrower), owner)
