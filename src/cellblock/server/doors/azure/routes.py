"""The paths of the protocol, which may follow any prefix. The path chooses the dialect.

Where both dialects share a path, the API version chooses the form of the answer.
"""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from ...http.endpoints import Endpoints, json_error
from ...http.services import Services
from .executions import Executions
from .files import FileOperations
from .identity import IdentityEndpoint
from .sessions import SessionOperations

IDENTITY_PATH = "/msi/token"


def azure_routes(services: Services) -> list[BaseRoute]:
    """Return the routes of the door. Put them last: they accept any prefix."""
    make = Endpoints(services, "azure", json_error).suffix_route
    runs, files, sessions = (
        Executions(services),
        FileOperations(services),
        SessionOperations(services),
    )
    return [
        Route(IDENTITY_PATH, IdentityEndpoint(services).__call__, methods=["GET"]),
        make("POST", "/code/execute", runs.execute),
        make("POST", "/executions", runs.create),
        make("GET", "/executions/{id}", runs.describe),
        make("POST", "/files/upload", files.upload_old),
        make("GET", "/files/content/{name:path}", files.download),
        make("POST", "/files", files.upload),
        make("GET", "/files", files.list_files),
        make("GET", "/files/{name:path}/content", files.download),
        make("GET", "/files/{name:path}", files.describe),
        make("DELETE", "/files/{name:path}", files.delete),
        make("GET", "/session", sessions.describe),
        make("DELETE", "/session", sessions.delete),
        make("GET", "/listSessions", sessions.list_sessions),
        make("GET", "/metadata", sessions.metadata),
        make("POST", "/.management/stopSession", sessions.stop),
    ]
