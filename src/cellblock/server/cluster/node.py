"""Node: what the server asks of one node of the cluster."""

from __future__ import annotations

from typing import Any

from ...errors import BackendError, BackendLost


class Node:
    """A node of the cluster and the actor there. See `NodeExecutors` for what it can be asked.

    name      its address, for messages
    actor     the handle of Ray
    is_lost   True once the actor is known to have ended
    """

    def __init__(self, ray: Any, name: str, actor: Any) -> None:
        self.name, self.actor, self.is_lost = name, actor, False
        self._errors = ray.exceptions

    async def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the actor and return its answer.

        Raise what the method has raised; `BackendLost` if the node or its actor has ended, and
        `BackendError` if it does not answer at present.
        """
        try:
            return await getattr(self.actor, method).remote(*arguments, **options)
        except self._errors.RayTaskError as error:
            raise error.cause or BackendError(str(error)) from error
        except self._errors.ActorUnavailableError as error:
            raise BackendError(
                f"The node {self.name} does not answer at present: {_first_line(error)}"
            ) from error
        except self._errors.RayError as error:
            self.is_lost = True
            raise BackendLost(
                f"The node {self.name} was lost, or its worker: {_first_line(error)}"
            ) from error

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method of the actor without waiting."""
        getattr(self.actor, method).remote(*arguments)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
