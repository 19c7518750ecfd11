"""Runs the worker with the handler for OpenAI-compatible upstreams."""

import argparse
import asyncio
import logging
import signal
import sys

from upstream import KINDS, send
from worker import Worker


def main() -> int:
    """Answers with the exit code: 0 after an orderly end."""
    parser = argparse.ArgumentParser(description="A Signalbox worker for OpenAI-compatible upstreams.")
    parser.add_argument("--nats", default="nats://127.0.0.1:4222", help="addresses of NATS, comma-separated")
    parser.add_argument("--pool", required=True)
    parser.add_argument("--id", required=True, help="the worker's id")
    parser.add_argument("--seed-file", required=True, help="the file with the seed of its credential")
    parser.add_argument("--slots", type=int, default=4, help="tasks that it executes at once")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.ERROR)
    with open(options.seed_file, encoding="utf-8") as file:
        seed = file.read().strip()

    async def run() -> int:
        worker = Worker(send, list(KINDS), options.slots)
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, worker.draining.set)
        return await worker.run(options.nats, seed, options.pool, options.id)

    return asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())
