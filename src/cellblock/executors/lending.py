"""Work folders of root on filesystems that cannot map owners: lent to the cells, who are somebody else, and taken back."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field

from ..sandbox.namespaces import OUTER_USERS
from ..sandbox.ownership import Owner, change_owner


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
            self._loan = _loans.setdefault(self._folder, _Loan(_owner(self._folder)))
            self._loan.uses += 1

    def note(self) -> None:
        """Note who has got the folder: now, since another process may take it over later."""
        self._is_noted = True
        user, _ = _owner(self._folder, even_borrowed=True)
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
                with contextlib.suppress(OSError):  # it is gone
                    change_owner(self._folder, (borrower, borrower), self._loan.owner)


def _owner(folder: str, *, even_borrowed: bool = False) -> Owner:
    """Give whose `folder` is: ours as well where it is gone, or lent by one who was killed and could not take it back."""
    with contextlib.suppress(OSError):
        status = os.stat(folder)
        if even_borrowed or status.st_uid not in OUTER_USERS:
            return status.st_uid, status.st_gid
    return os.geteuid(), os.getegid()
