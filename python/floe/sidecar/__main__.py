"""A sidecar process: `python -P -m floe.sidecar`, started by the shim and by nobody else.

Its life hangs on its standard input. The first line is the JVM's greeting: a token for Py4J, the
settings, the JVM's pid and heap, and the memory layout it speaks. The answer, one line on standard
output, is the port or the reason why not. When the input ends, the JVM is gone, and so is this
process; a kill -9 of either side leaves nothing behind.
"""

import json
import logging
import os
import signal
import sys
import threading
from typing import Any

from floe import __version__
from floe.errors import FloeError, InternalError, InvalidRequest


def main() -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s floe.sidecar[%(process)d] %(message)s",
    )
    # Ctrl-C in a terminal reaches the whole process group; the JVM decides when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    greeting = json.loads(sys.stdin.readline())
    try:
        answer = _serve(greeting)
    except FloeError as error:
        answer = {"error": error.wire()}
    except Exception as error:
        logging.exception("cannot start")
        answer = {"error": InternalError(f"{type(error).__name__}: {error}").wire()}
    print(json.dumps(answer), flush=True)
    if "error" not in answer:
        sys.stdin.read()  # returns when the JVM is gone
    os._exit(0)


def _serve(greeting: dict[str, Any]) -> dict[str, Any]:
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

    from floe.config import FloeConfig
    from floe.engine import Engine
    from floe.format import delta, trailer
    from floe.format.layout import LAYOUT_VERSION
    from floe.memory import memory_limit, resolve_budget
    from floe.sidecar.gateway import Door
    from floe.storage import paths
    from floe.storage.slabs import SlabPool

    if greeting["layout"] != LAYOUT_VERSION or greeting["floe"] != __version__:
        raise InvalidRequest(
            f"the jar is Floe {greeting['floe']} (memory layout {greeting['layout']}), the Python"
            f" package of {sys.executable} is Floe {__version__} (memory layout {LAYOUT_VERSION}):"
            " install the same version on both sides"
        )
    config = FloeConfig.from_spark(greeting["conf"])
    budget = resolve_budget(config.memory_bytes, greeting["heapBytes"], memory_limit().limit_bytes)
    share = budget // config.sidecar_processes
    slab_bytes = min(config.slab_bytes, max(1 << 20, 1 << (share // 8).bit_length() - 1))
    engine = Engine(SlabPool(share, slab_bytes, config.local_dir or None))
    server = ClientServer(
        java_parameters=JavaParameters(auth_token=greeting["token"], auto_field=False),
        python_parameters=PythonParameters(
            port=0, auth_token=greeting["token"], daemonize=True, daemonize_connections=True
        ),
        python_server_entry_point=Door(engine),
    )
    # py4j logs a full trace when the JVM closes a connection; that is how connections end.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    port = server.get_callback_server().get_listening_port()
    threading.current_thread().name = "floe-death-watch"
    logging.info(
        "Floe %s serves JVM %s, %d bytes of state memory", __version__, greeting["jvm"], share
    )
    return {
        "port": port,
        "pid": os.getpid(),
        "floe": __version__,
        "budget": share,
        "seal": trailer.SEAL,
        "emptyDelta": delta.empty().hex(),
        "deltaName": paths.DELTA_PATTERN,
        "aliasName": paths.ALIAS_PATTERN,
    }


if __name__ == "__main__":
    main()
