"""A Flask application, whose requests do GPU work, for gunicorn's workers."""

from __future__ import annotations

import gpu
from flask import Flask, Response, request

gpu.start()
app = Flask(__name__)


@app.route("/work/<int:number>/<int:times>/<how>", methods=["GET", "POST"])
def work(number: int, times: int, how: str) -> Response:
    """Launch, and answer."""
    request.get_data()
    gpu.launch(number, times=times)
    if how == "copies":
        gpu.copy(512)
        gpu.wait()
    if how in ("stream", "sse"):

        def parts():
            for n in range(3):
                gpu.launch(number)
                yield f"data: {n}\n\n"

        return Response(parts(), mimetype="text/event-stream")
    return Response("done\n")
