"""The wire: JSON messages over Py4J, from the JVM to this process and never back.

A message is {"free": {table: [refs]}, "calls": [{"method", "args"}, ...]}; its answer
{"answers", "gone"} has a result or an error for each call, and the slabs that went back to the
machine. One Py4J round trip thus serves every task that waits.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

from floe.engine import Engine, Reply
from floe.errors import FloeError, InternalError, Unavailable

__all__ = ["Door"]

_LOG = logging.getLogger(__name__)

_METHODS = (
    "register",
    "close",
    "adopt",
    "allocate",
    "memory",
    "prepare",
    "load",
    "load_more",
    "snapshot_copy",
    "snapshot_write",
    "snapshot_done",
    "retain",
)


class Door:
    """Py4J's entry point. Its one method is all that the shim can reach."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._methods: dict[str, Callable[..., Reply]] = {m: getattr(engine, m) for m in _METHODS}

    def call(self, message: str) -> str:
        request = json.loads(message)
        gone = self._engine.free(request["free"]) if request["free"] else []
        answers = [self._answer(call) for call in request["calls"]]
        return json.dumps({"answers": answers, "gone": gone})

    def _answer(self, call: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": self._methods[call["method"]](**call["args"])}
        except FloeError as error:
            return {"error": error.wire()}
        except OSError as error:
            _LOG.warning("call %s failed: %s", call["method"], error)
            where = f" at {error.filename}" if error.filename else ""
            return {"error": Unavailable(f"{call['method']}: {error.strerror}{where}").wire()}
        except Exception as error:
            _LOG.exception("call %s failed", call.get("method"))
            wrapped = InternalError(
                f"{call.get('method')}: {type(error).__name__}: {error}"
                " (the sidecar's log has the trace)"
            )
            return {"error": wrapped.wire()}

    class Java:
        implements = ("org.apache.spark.sql.floe.SidecarDoor",)
