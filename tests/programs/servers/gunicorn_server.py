"""gunicorn with the Flask application. Arguments: the kind of worker (sync, gthread); `tls` with a certificate's file."""

from __future__ import annotations

import os
import sys

import gpu
from gunicorn.app.base import BaseApplication
from many_clients import certificate_asked

sys.path.insert(0, os.path.dirname(__file__))
WORKERS = 2


class Application(BaseApplication):
    """Loads the application in its workers."""

    def load_config(self) -> None:
        self.cfg.set("bind", "127.0.0.1:0")
        self.cfg.set("workers", WORKERS)
        self.cfg.set("worker_class", sys.argv[1])
        self.cfg.set("threads", 4 if sys.argv[1] == "gthread" else 1)
        self.cfg.set("loglevel", "error")
        if certificate := certificate_asked():
            self.cfg.set("certfile", certificate)
            self.cfg.set("keyfile", certificate)
        self.cfg.set("post_worker_init", ready)
        self.cfg.set("worker_exit", lambda _server, worker: gpu.say(event="worker_end", launches=gpu.launched()))

    def load(self):
        from flask_app import app

        return app


def ready(worker) -> None:
    """Say that a worker serves."""
    gpu.say(event="worker", port=worker.sockets[0].getsockname()[1])


if __name__ == "__main__":
    Application().run()
