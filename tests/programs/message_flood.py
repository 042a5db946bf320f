"""What would a stranger do to have its messages taken for others'? It sends one over and over, and receives it itself.

usage: message_flood.py MESSAGE COUNT

Prints "ready", waits for a line on standard input, and prints "flooded" when all of them were received.
"""

from __future__ import annotations

import json
import sys
import threading

import zmq


def main() -> None:
    message, count = sys.argv[1].encode(), int(sys.argv[2])
    context = zmq.Context()
    sender, receiver = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    port = receiver.bind_to_random_port("tcp://127.0.0.1")
    sender.connect(f"tcp://127.0.0.1:{port}")

    def send() -> None:
        for _ in range(count):
            sender.send(message)

    print(json.dumps({"event": "ready"}), flush=True)
    sys.stdin.readline()
    sending = threading.Thread(target=send)
    sending.start()
    received = sum(receiver.recv() == message for _ in range(count))
    sending.join()
    print(json.dumps({"event": "flooded", "received": received}), flush=True)


if __name__ == "__main__":
    main()
